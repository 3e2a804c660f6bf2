//! Measures the cost of a change that one of many watches receives:
//! `cargo bench --bench watch_selective`.
//!
//! Each row contains the writer's part, all wakes, and the polls of the streams that were woken.
//! The aim is that with 5,000 watches a change costs at most 1.5 times as much as with only the
//! watch that receives it.

mod watchers;

use divan::Bencher;
use kubefan::api::{
    Field, FieldSelector, FieldTerm, LabelOperator, LabelRequirement, LabelSelector, Selection,
};
use watchers::{Pods, Watchers};

/// The number of pods, each on a different node. Every change is to the first pod.
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

/// Measures a change without watches: the part of the store and the event log in the other figures.
#[divan::bench(sample_count = 50, sample_size = 100)]
fn no_watch(bencher: Bencher<'_, '_>) {
    let mut pods = Pods::new(PODS);
    bencher.bench_local(|| pods.change(0));
}

/// Measures watches with different values of `spec.nodeName`.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 100)]
fn distinct_field(bencher: Bencher<'_, '_>, count: usize) {
    one_change(bencher, count, on_node);
}

/// Measures watches with different values of one label.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 100)]
fn distinct_label(bencher: Bencher<'_, '_>, count: usize) {
    let shard = |index| with_labels(&[("shard", format!("shard-{index}"))]);
    one_change(bencher, count, shard);
}

/// Measures watches with different values of one label, and a common value of another label before
/// it.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 100)]
fn distinct_second_label(bencher: Bencher<'_, '_>, count: usize) {
    let selection = |index| {
        let shard = format!("shard-{index}");
        with_labels(&[("app", "web".to_owned()), ("shard", shard)])
    };
    one_change(bencher, count, selection);
}
