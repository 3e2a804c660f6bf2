//! What a selection costs: its memory, and the work of comparing it with an object.

use super::{LabelOperator, LabelRequirement, LabelSelector, Selection};

/// Estimated bytes that the allocator adds to a text.
const TEXT_OVERHEAD: usize = 16;
/// Number of conditions in one unit of [`Selection::units`].
const CONDITIONS_PER_UNIT: usize = 16;

// === impl Selection ===

impl Selection {
    /// Estimates the memory of the conditions in bytes. Without conditions, the result is 0.
    pub fn weight(&self) -> usize {
        let terms = self.fields.terms.iter();
        let terms = terms.map(|term| size_of_val(term) + text(&term.value));
        let shard = self.shard.as_ref().map_or(0, |shard| shard.weight());
        let namespace = self.namespace.as_deref().map_or(0, text);
        namespace + self.labels.weight() + terms.sum::<usize>() + shard
    }

    /// Returns the work of comparing the selection with an object, in units of 16 conditions. It is
    /// at least 1. A set of values is one condition, because it is searched by bisection.
    pub fn units(&self) -> usize {
        let conditions = self.labels.requirements.len() + self.fields.terms.len();
        conditions.div_ceil(CONDITIONS_PER_UNIT).max(1)
    }
}

impl LabelSelector {
    fn weight(&self) -> usize {
        let requirements = self.requirements.iter();
        requirements.map(LabelRequirement::weight).sum()
    }
}

impl LabelRequirement {
    fn weight(&self) -> usize {
        let values = match &self.operator {
            LabelOperator::In(values) | LabelOperator::NotIn(values) => values.as_slice(),
            _ => &[],
        };
        let values = values.iter().map(|value| size_of_val(value) + text(value));
        size_of_val(self) + text(&self.key) + values.sum::<usize>()
    }
}

fn text(text: &str) -> usize {
    text.len() + TEXT_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(selector: &str) -> Selection {
        Selection {
            labels: LabelSelector::parse(selector).expect("a selector"),
            ..Selection::default()
        }
    }

    #[test]
    fn the_weight_grows_with_the_conditions_and_their_values() {
        assert_eq!(Selection::default().weight(), 0);
        let one = labelled("a=b").weight();
        assert!((64..256).contains(&one), "{one}");
        let values: Vec<_> = (0..1_000).map(|value| format!("{value:04}")).collect();
        let set = labelled(&format!("a in ({})", values.join(","))).weight();
        assert!((40_000..60_000).contains(&set), "{set}");
        let conditions = labelled(&format!("!a{}", values.join(",!a"))).weight();
        assert!((60_000..100_000).contains(&conditions), "{conditions}");
    }

    #[test]
    fn units_are_counted_by_conditions() {
        let conditions = |count: usize| {
            let conditions: Vec<_> = (0..count).map(|number| format!("!a{number}")).collect();
            labelled(&conditions.join(",")).units()
        };
        assert_eq!([0, 1, 16, 17, 160].map(conditions), [1, 1, 1, 2, 10]);
        assert_eq!(
            labelled("a in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17)").units(),
            1
        );
    }
}
