//! Creates the bill, and settles it regularly.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::bill::Bill;
use crate::config::ServeConfig;

/// How often the bill asks open watches what they have delivered. Otherwise a read would count all
/// that they have ever delivered as that of the last minute.
const SETTLE_INTERVAL: Duration = Duration::from_secs(10);

/// Creates the bill, unless it is off. Its memory and what is saved are metrics of `registry`.
pub(super) fn start_bill(
    config: &ServeConfig,
    registry: &Registry,
    shutdown: &Shutdown,
) -> Option<Arc<Bill>> {
    if !config.requests.has_bill {
        return None;
    }
    let bill = Arc::new(Bill::new(&config.memory, Instant::now()));
    let sampled = Arc::clone(&bill);
    registry.on_scrape(move |samples| sampled.sample(Instant::now(), samples));
    let settled = Arc::clone(&bill);
    shutdown.spawn_background(async move {
        let mut ticks = interval(SETTLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            settled.settle(Instant::now());
        }
    });
    Some(bill)
}
