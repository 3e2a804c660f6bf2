//! Runs a load test: connects, creates the objects, measures, cleans up, and returns the report.

mod measure;
mod peak;
mod resume;
mod summary;
mod test_namespace;

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::Resource;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{Client, Discovery};
use kubefan_proxy::net::open_files_limit;
use measure::{Measurement, RunStats, find_sources};
use summary::{settings, summarize};
use test_namespace::TestNamespace;
use tokio::time::sleep;

use crate::load::clock::nanoseconds;
use crate::load::config::{Config, Protocol};
use crate::load::error::{Error, with_causes};
use crate::load::progress::Progress;
use crate::load::results::environment::Environment;
use crate::load::results::report::{Report, Run};
use crate::load::run_state::{LAST_ANSWERS, RunState};
use crate::load::target;
use crate::load::target::server_error;
use crate::load::write::objects::Objects;
use crate::load::write::schedule::Schedule;
use crate::load::write::writer::WriteJob;

/// The flag that names the second server; the first server is compared with it.
const COMPARE_FLAG: &str = "--compare";
/// An estimate of the open files besides the connections.
const OTHER_FILES: usize = 64;
/// The number of steps of the timeline.
const STEPS: u32 = 100;
const SHORTEST_STEP: Duration = Duration::from_millis(100);

/// Tests the server, and then the second server if there is one. If `shutdown` begins to drain, the
/// test ends early and reports what it has measured so far. In any case it deletes everything that
/// it created.
///
/// # Errors
///
/// If there is nothing to report. Everything that the test created is deleted in this case too.
pub async fn run(
    config: &Config,
    progress: &mut Progress,
    shutdown: &Shutdown,
) -> Result<Report, Error> {
    if let Some(compared) = &config.compared {
        // Report an unreachable second server before the first run, because that run takes long.
        tokio::select! {
            connected = target::connect(&compared.client, COMPARE_FLAG) => drop(connected?),
            () = shutdown.draining() => return Err(Error::Interrupted),
        }
    }
    let environment = Environment::of_process();
    let named_by = "--context or --server";
    let mut runs = vec![run_one(config, named_by, progress, shutdown).await?];
    let mut compared_failed = None;
    if let Some(compared) = &config.compared
        && !shutdown.is_draining()
    {
        let mut config = config.clone();
        config.watched = compared.clone();
        match run_one(&config, COMPARE_FLAG, progress, shutdown).await {
            Ok(run) => runs.push(run),
            // The results of the first run are reported even if the second run fails.
            Err(error) => compared_failed = Some(with_causes(&error)),
        }
    }
    Ok(Report::new(environment, runs, compared_failed))
}

/// Tests one server. `named_by` lists the flags that can name this server.
async fn run_one(
    config: &Config,
    named_by: &'static str,
    progress: &mut Progress,
    shutdown: &Shutdown,
) -> Result<Run, Error> {
    check_open_files(config)?;
    // Nothing has been created on the server yet, so this can be cancelled at any time.
    let servers = tokio::select! {
        servers = connect_servers(config, named_by) => servers?,
        () = shutdown.draining() => return Err(Error::Interrupted),
    };
    let (client, resource) = (&servers.client, &servers.resource);
    let id = format!("{:08x}", rand::random::<u32>());
    let objects = Objects::new(&id, resource, config.selector.as_ref(), config.watchers);
    let namespace = config.namespace.as_deref();
    let mut test_namespace =
        TestNamespace::new(servers.writer.clone(), resource.clone(), namespace, objects);
    let collection = if config.all_namespaces {
        resource.gvr.path(None)
    } else {
        test_namespace.path()
    };
    progress.print_line(&format!(
        "{}: {} object{} of {} in namespace {}",
        client.server(),
        config.objects,
        if config.objects == 1 { "" } else { "s" },
        resource.gvr.group_resource(),
        test_namespace.name
    ));
    let run_state = Arc::new(RunState::new(config, client.clone(), collection, &id));
    let settings = settings(config, &servers, &test_namespace);
    let outcome = measure_in_namespace(&mut test_namespace, &run_state, progress, shutdown).await;
    run_state.stop();
    let cleaned = test_namespace.clean_up().await;
    let left_behind = cleaned.err().map(|error| error.to_string());
    if let Some(left_behind) = &left_behind {
        progress.print_line(left_behind);
    }
    let (object_bytes, stats) = outcome?;
    Ok(summarize(
        settings,
        stats,
        run_state.is_cut_short(),
        object_bytes,
        left_behind,
    ))
}

/// The connected servers, the watched server's version, and the resource under test.
struct TestServers {
    client: Client,
    writer: Client,
    version: String,
    resource: Resource,
}

async fn connect_servers(config: &Config, named_by: &'static str) -> Result<TestServers, Error> {
    let client = target::connect(&config.watched.client, named_by).await?;
    let writer = match &config.written {
        None => client.clone(),
        Some(written) => target::connect(&written.client, "--write-server").await?,
    };
    let version = Discovery::version(&client).await;
    let version = version.map_err(server_error(|| {
        format!("get the version of {}", client.server())
    }))?;
    let resource = target::resource(&writer, &config.resource).await?;
    Ok(TestServers {
        client,
        writer,
        version,
        resource,
    })
}

async fn measure_in_namespace(
    test_namespace: &mut TestNamespace,
    run_state: &Arc<RunState>,
    progress: &mut Progress,
    shutdown: &Shutdown,
) -> Result<(usize, RunStats), Error> {
    let config = &run_state.config;
    let set_up = async {
        test_namespace.prepare().await?;
        test_namespace
            .fill(config.objects, config.object_size, shutdown)
            .await
    };
    let deadline = async {
        shutdown.draining().await;
        sleep(LAST_ANSWERS).await;
    };
    let object_bytes = tokio::select! {
        filled = set_up => filled?,
        () = deadline => return Err(Error::Interrupted),
    };
    let step = (config.duration / STEPS).max(SHORTEST_STEP);
    let measurement = Measurement {
        sources: find_sources(run_state, &test_namespace.client).await?,
        run_state: Arc::clone(run_state),
        shutdown,
        step: nanoseconds(step),
    };
    let job = WriteJob {
        client: test_namespace.client.clone(),
        objects: test_namespace.objects.clone(),
        path: test_namespace.path(),
        schedule: Schedule::new(config.rate, config.objects, config.duration),
        run_state: Arc::clone(run_state),
        sent_before: Vec::new(),
    };
    Ok((object_bytes, measurement.measure(job, progress).await?))
}

/// Refuses a test that needs more open files than this process may have.
fn check_open_files(config: &Config) -> Result<(), Error> {
    let connections = match config.protocol {
        Protocol::Http1 => config.watchers + config.slow_watchers,
        Protocol::Http2 => config.connections + config.slow_watchers.div_ceil(100),
    };
    let needed = connections as usize + config.list_storm as usize + OTHER_FILES;
    match open_files_limit() {
        Some(limit) if limit < needed => Err(Error::Refused(format!(
            "{connections} connections need {needed} open files, and the limit is {limit}: raise it with \
             `ulimit -n {needed}`, or use fewer connections"
        ))),
        _ => Ok(()),
    }
}
