//! `kubefan demo`: kubefan in front of a simulated cluster that changes all the time.

use std::time::Duration;

use anyhow::Context;

use crate::config::GlobalArgs;
use crate::process::Error;
use crate::process::block_on;
use crate::process::drain_result;
use crate::process::install_log;
use crate::process::print;
use crate::process::unless_stopped;
use crate::shutdown::Outcome;
use crate::shutdown::Signals;
use crate::tools::app::DemoApp;
use crate::tools::config::DemoArgs;
use crate::tools::config::DemoConfig;

/// How often the demo prints what kubefan did so far.
const REPORT: Duration = Duration::from_secs(5);

/// Runs a simulated cluster and a kubefan in front of it until a signal arrives.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the flags, before any socket is opened; [`Error::Failed`] if a
/// server cannot start, a file cannot be written, or the drain was aborted.
pub(super) fn demo(global: &GlobalArgs, args: &DemoArgs) -> Result<(), Error> {
    let config = DemoConfig::try_from(args)?;
    // The log is quiet, because it would hide the summaries on standard output.
    install_log(global, true)?;
    block_on(run(config))
}

async fn run(config: DemoConfig) -> Result<(), Error> {
    let mut signals = Signals::of_process().context("cannot listen for signals")?;
    let (nodes, pods, churn) = (config.nodes, config.pods, config.churn);
    let start = async { Ok(DemoApp::start(config).await?) };
    let Some(app) = unless_stopped(start, &mut signals).await? else {
        return Ok(());
    };
    print(&format!(
        "A simulated cluster of {nodes} nodes and {pods} pods, {churn} changes per second, behind \
         kubefan.\n{}",
        introduction(&app)
    ));
    let totals = app.totals();
    let report = async move {
        loop {
            tokio::time::sleep(REPORT).await;
            let totals = totals();
            print(&format!(
                "clients: {} requests, {} of them from the cache, {} watches open, {} events | \
                 cluster: {} requests, {} events\n",
                totals.requests,
                totals.from_cache,
                totals.watchers,
                totals.events_sent,
                totals.upstream_requests,
                totals.upstream_events,
            ));
        }
    };
    let outcome = tokio::select! {
        outcome = app.run(signals) => outcome,
        () = report => Outcome::Drained,
    };
    drain_result(outcome)
}

fn introduction(app: &DemoApp) -> String {
    let kubectl = format!("kubectl --kubeconfig {}", app.kubeconfig().display());
    let url = app.kubefan().url();
    format!(
        "
kubefan serves on {url}
admin on {}
simulated API server on {}
fault injection on {}

Try:
  {kubectl} get pods -A
  {kubectl} get pods -A --watch
  {kubectl} create configmap hello --from-literal=a=b
  curl '{url}/api/v1/nodes?resourceVersion=0&limit=1'
  curl -N '{url}/api/v1/pods?watch=true&resourceVersion=0'
Ctrl-C stops it.

",
        app.kubefan().admin_url(),
        app.simulated().url(),
        app.simulated().admin_url(),
    )
}
