//! Crowds of GETs of the most recent state: while their resource changes, they share proofs, and
//! they show every write that was acknowledged before they were sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::clients::client::{Answer, Client};
use crate::support::programs::apiserver::{ApiServer, private};
use crate::support::programs::kubefan::Kubefan;

const PROOF: &str = "x-kubefan-proof";
const OBJECTS: usize = 200;
/// How many rounds must cost few GETs.
const ROUNDS: usize = 10;
/// The most GETs of a round that may reach the API server then.
const MOST_FORWARDED: f64 = (OBJECTS / 4) as f64;
/// On a machine that pauses, kubefan forwards crowds for some seconds. It must have gone back to
/// proofs before the end of this time.
const LIMIT: Duration = Duration::from_secs(240);

/// ConfigMaps that change, behind a kubefan.
struct Scene {
    kubefan: Kubefan,
    server: ApiServer,
    path: String,
    /// The version of each object that its last acknowledged write returned.
    written: Vec<AtomicU64>,
}

impl Scene {
    async fn start() -> Self {
        // The tests of a shared API server would change other resources, which delays barriers.
        let server = private().await;
        let namespace = server.namespace("crowd").await;
        let scene = Self {
            kubefan: Kubefan::start(&server, &[]).await,
            path: format!("/api/v1/namespaces/{namespace}/configmaps"),
            written: (0..OBJECTS).map(|_| AtomicU64::new(0)).collect(),
            server,
        };
        let direct = scene.server.client();
        let created = (0..OBJECTS).map(async |number| {
            let object = json!({ "metadata": { "name": name(number) } });
            let answer = direct.create(&scene.path, &object).await.ok();
            scene.written[number].store(version(&answer.json()), Ordering::SeqCst);
        });
        join_all(created).await;
        let cached = format!("{}?resourceVersion=0", scene.path);
        scene.kubefan.client().get(&cached).await.ok();
        scene
    }

    /// Writes one object after another, without end.
    async fn write(&self) {
        let direct = self.server.client();
        for round in 0_u64.. {
            for (number, written) in self.written.iter().enumerate() {
                let change = json!({ "data": { "round": round.to_string() } });
                let path = format!("{}/{}", self.path, name(number));
                let answer = direct.merge(&path, &change).await.ok();
                written.store(version(&answer.json()), Ordering::SeqCst);
            }
        }
    }

    /// Reads an object, and checks that the answer shows its last acknowledged write.
    async fn read(&self, client: &Client, number: usize) -> Answer {
        let acknowledged = self.written[number].load(Ordering::SeqCst);
        let path = format!("{}/{}", self.path, name(number));
        let answer = client.get(&path).await.ok();
        let object = answer.json();
        assert_eq!(object["metadata"]["name"], name(number), "{answer}");
        let shown = version(&object);
        assert!(
            shown >= acknowledged,
            "{acknowledged} was written: {answer}"
        );
        answer
    }

    /// Returns the number of GETs of ConfigMaps that the API server has answered.
    async fn gets(&self) -> f64 {
        let labels = [("resource", "configmaps"), ("verb", "GET")];
        self.server.metric("apiserver_request_total", &labels).await
    }

    /// Reads all objects concurrently. Returns how many GETs the API server has answered for this,
    /// and how many answers had a proof.
    async fn read_all(&self, client: &Client) -> (f64, usize) {
        let before = self.gets().await;
        let reads = (0..OBJECTS).map(|number| self.read(client, number));
        let answers = join_all(reads).await;
        let proven = answers.iter().filter(|answer| is_proven(answer)).count();
        (self.gets().await - before, proven)
    }
}

fn name(number: usize) -> String {
    format!("object-{number:03}")
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.expect("a version").parse().expect("a number")
}

fn is_proven(answer: &Answer) -> bool {
    answer.header(PROOF).is_some()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_crowd_of_gets_costs_few_gets_while_the_resource_changes() {
    let scene = Scene::start().await;
    let client = scene.kubefan.client();
    let deadline = Instant::now() + LIMIT;
    let reading = async {
        let mut good = 0;
        while good < ROUNDS {
            let (forwarded, proven) = scene.read_all(&client).await;
            let summary = format!("{forwarded} GETs at the API server, {proven} proven answers");
            println!("{summary}");
            if forwarded <= MOST_FORWARDED {
                assert!(proven > OBJECTS / 2, "{summary}");
                good += 1;
            }
            assert!(Instant::now() < deadline, "{good} good rounds; {summary}");
        }
        // One GET after another is no crowd.
        for number in 0..OBJECTS / 10 {
            let answer = scene.read(&client, number).await;
            assert!(!is_proven(&answer), "{answer}");
        }
        // Identical GETs share calls.
        let before = scene.gets().await;
        let reads = (0..OBJECTS).map(|_| scene.read(&client, 7));
        for answer in join_all(reads).await {
            assert!(!is_proven(&answer), "{answer}");
        }
        let forwarded = scene.gets().await - before;
        let most = OBJECTS as f64 / 2.0;
        assert!((1.0..=most).contains(&forwarded), "{forwarded} GETs");
    };
    tokio::select! {
        () = scene.write() => {}
        () = reading => {}
    }
}
