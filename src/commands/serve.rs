//! `kubefan serve`: runs the proxy until a signal arrives.

use anyhow::Context;
use kubefan_core::shutdown::Signals;
use kubefan_core::telemetry;
use kubefan_proxy::app::{App, ConfigSource, ConfigWatch, hangups};
use kubefan_proxy::config::{ResolvedConfig, ServeArgs};
use kubefan_proxy::process::{Error, block_on_few_threads, drain_result, print, unless_stopped};

/// Serves until a signal arrives. The first signal starts the drain, and a second signal ends the
/// drain at once. A signal before the API server has answered ends kubefan at once.
///
/// Prints the URLs of both listeners on standard output when the API server has answered.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the configuration, before any socket is opened;
/// [`Error::Failed`] if kubefan cannot start or the drain was aborted.
pub(super) fn serve(args: &ServeArgs) -> Result<(), Error> {
    let started = ResolvedConfig::new(args)?;
    let log = telemetry::install_log(started.log).context("cannot set up the log")?;
    let (again, file) = (args.clone(), args.config.clone());
    block_on_few_threads(run(ConfigSource {
        started,
        file,
        load: Box::new(move || ResolvedConfig::new(&again)),
        log,
    }))
}

async fn run(source: ConfigSource) -> Result<(), Error> {
    let mut signals = Signals::of_process().context("cannot listen for signals")?;
    // Registered before the start, because without a handler SIGHUP ends kubefan.
    let hangups = hangups().context("cannot listen for signals")?;
    let start = async {
        let watch = ConfigWatch::begin(source, hangups).await;
        let watch = watch.context("cannot watch the configuration file")?;
        let app = App::start(watch.started().clone()).await?;
        app.watch_config(watch);
        Ok(app)
    };
    let Some(app) = unless_stopped(start, &mut signals).await? else {
        return Ok(());
    };
    print(&format!(
        "kubefan serves on {}\nadmin on {}\n",
        app.url(),
        app.admin_url()
    ));
    drain_result(app.run(signals).await)
}
