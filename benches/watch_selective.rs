//! What a change costs that concerns one watch among many: `cargo bench --bench watch_selective`.
//!
//! Each row is the writer's part, all wake-ups, and the polls of everyone who was woken. The aim is that
//! 5,000 watches cost no more than half as much again as the one which the change concerns.

mod watchers;

use divan::Bencher;
use kubefan::api::Field;
use kubefan::api::FieldSelector;
use kubefan::api::FieldTerm;
use kubefan::api::LabelOperator;
use kubefan::api::LabelRequirement;
use kubefan::api::LabelSelector;
use kubefan::api::Selection;

use watchers::Pods;
use watchers::Watchers;

/// As many pods as nodes; the change is always to the first.
const PODS: usize = 5_000;
const COUNTS: [usize; 2] = [1, 5_000];

fn main() {
    divan::main();
}

fn on_node(index: usize) -> Selection {
    let term = FieldTerm {
        field: Field::Value(0),
        equal: true,
        value: format!("node-{index}"),
    };
    Selection {
        fields: FieldSelector { terms: vec![term] },
        ..Selection::default()
    }
}

fn with_labels(labels: &[(&str, String)]) -> Selection {
    let requirement = |(key, value): &(&str, String)| LabelRequirement {
        key: (*key).to_owned(),
        operator: LabelOperator::In(vec![value.clone()]),
    };
    Selection {
        labels: LabelSelector {
            requirements: labels.iter().map(requirement).collect(),
        },
        ..Selection::default()
    }
}

fn one_change(bencher: Bencher<'_, '_>, count: usize, selection: impl Fn(usize) -> Selection) {
    let mut pods = Pods::new(PODS);
    let mut watchers = Watchers::open(&pods.reader, (0..count).map(selection));
    bencher.bench_local(|| {
        pods.change(0);
        assert_eq!(watchers.take_changes(), 1);
    });
}

/// Nobody watches: what of the figures below is the store's and the log's.
#[divan::bench(sample_count = 50, sample_size = 100)]
fn no_watch(bencher: Bencher<'_, '_>) {
    let mut pods = Pods::new(PODS);
    bencher.bench_local(|| pods.change(0));
}

/// Watches with distinct `spec.nodeName`.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 100)]
fn distinct_field(bencher: Bencher<'_, '_>, count: usize) {
    one_change(bencher, count, on_node);
}

/// Watches with distinct values of a label.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 100)]
fn distinct_label(bencher: Bencher<'_, '_>, count: usize) {
    let shard = |index| with_labels(&[("shard", format!("shard-{index}"))]);
    one_change(bencher, count, shard);
}

/// The same with a label before it that all of them have in common.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 100)]
fn distinct_second_label(bencher: Bencher<'_, '_>, count: usize) {
    let selection = |index| {
        let shard = format!("shard-{index}");
        with_labels(&[("app", "web".to_owned()), ("shard", shard)])
    };
    one_change(bencher, count, selection);
}
