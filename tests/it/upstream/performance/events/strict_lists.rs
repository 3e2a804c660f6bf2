//! Which share of strict LISTs of Events the cache answers, and how fast.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::scene::{Kind, Scene};
use crate::support::settings::setting as environment;
use crate::upstream::performance::gets::PROOF;
use crate::upstream::performance::measure::percentile;

/// New Events per second.
const RATES: [f64; 4] = [500.0, 50.0, 10.0, 1.0];
const BETWEEN_LISTS: Duration = Duration::from_millis(200);
const LIST: &str = "/api/v1/events?limit=10";

/// Prints the table. Each row takes twice `KUBEFAN_SECONDS`, and has a kubefan of its own, so that
/// no proof that failed in an earlier row has a part in it.
pub(super) async fn measure(scene: &Scene) {
    let seconds: u64 = environment("KUBEFAN_SECONDS", 10);
    let time = Duration::from_secs(2 * seconds);
    println!(
        "| new events/s | strict LISTs | from the cache | p50 directly | p50 kubefan | \
         p99 directly | p99 kubefan |"
    );
    println!("|---|---|---|---|---|---|---|");
    for rate in RATES {
        let (_kubefan, through) = scene.kubefan_with(Kind::Events).await;
        let (mut direct_waits, mut waits, mut from_cache) = (Vec::new(), Vec::new(), 0);
        let reading = async {
            let (began, mut clock) = (Instant::now(), interval(BETWEEN_LISTS));
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while began.elapsed() < time {
                clock.tick().await;
                let asked = Instant::now();
                let answer = through.get(LIST).await.ok();
                waits.push(asked.elapsed().as_secs_f64() * 1e3);
                from_cache += usize::from(answer.header(PROOF).is_some());
                let asked = Instant::now();
                scene.direct.get(LIST).await.ok();
                direct_waits.push(asked.elapsed().as_secs_f64() * 1e3);
            }
        };
        tokio::join!(reading, scene.write(Kind::Events, rate, time));
        let share = from_cache as f64 * 1e2 / waits.len() as f64;
        for waits in [&mut direct_waits, &mut waits] {
            waits.sort_by(f64::total_cmp);
        }
        let columns = [0.5, 0.99].map(|of| {
            let [direct, through] = [&direct_waits, &waits].map(|waits| percentile(waits, of));
            format!("{direct:.1} ms | {through:.1} ms")
        });
        println!(
            "| {rate} | {} | {share:.0} % | {} |",
            waits.len(),
            columns.join(" | ")
        );
    }
}
