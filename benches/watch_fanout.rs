//! What one change to many watches of the same costs: `cargo bench --bench watch_fanout`.

mod watchers;

use divan::Bencher;
use divan::counter::ItemsCount;
use kubefan::api::Selection;

use watchers::Pods;
use watchers::Watchers;

const COUNTS: [usize; 2] = [1_000, 5_000];

fn main() {
    divan::main();
}

/// The writer's part, the wake-up and the polls of all streams: an item is a stream's change.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 20)]
fn one_change(bencher: Bencher<'_, '_>, count: usize) {
    let mut pods = Pods::new(100);
    let all = (0..count).map(|_| Selection::default());
    let mut watchers = Watchers::open(&pods.reader, all);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        pods.change(0);
        assert_eq!(watchers.take(), count);
    });
}

/// Sixteen changes before anybody looks.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 5)]
fn sixteen_changes(bencher: Bencher<'_, '_>, count: usize) {
    let mut pods = Pods::new(100);
    let all = (0..count).map(|_| Selection::default());
    let mut watchers = Watchers::open(&pods.reader, all);
    let items = ItemsCount::new(16 * count);
    bencher.counter(items).bench_local(|| {
        (0..16).for_each(|index| pods.change(index));
        assert_eq!(watchers.take(), 16 * count);
    });
}
