//! The supported built-in kinds: their columns, and how their cells are computed.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use super::shows::{SHOWS, Show};
use super::{access, pod};
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::column::ColumnDefinition;
use crate::codec::table::part::Part;

/// The name of the columns and cells for kinds without an entry: Name and Created At.
const DEFAULT: &str = "default";

/// The largest number of steps to a value.
const MAX_STEPS: usize = 6;

/// A kind for some API servers: a line of `cells.txt`.
struct Kind {
    /// The apiVersion and the kind, such as `apps/v1/Deployment`.
    name: &'static str,
    /// The minor versions of the API servers.
    minors: RangeInclusive<u32>,
    cells: Cells,
}

/// How the cells of a kind are computed.
#[derive(Debug)]
pub(in crate::codec::table) enum Cells {
    /// Each by its own rule.
    Each(Vec<Rule>),
    /// All in one pass, because most of them depend on the same values.
    Whole(fn(Part<'_>) -> Vec<Cell>),
}

/// How a cell is computed.
#[derive(Debug)]
pub(in crate::codec::table) struct Rule {
    show: Show,
    /// The steps to the value.
    path: Vec<&'static str>,
    /// The text for `show`.
    otherwise: &'static str,
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let lines = include_str!("cells.txt").lines();
    let kinds = lines.filter(|line| !line.starts_with('#')).map(kind);
    let kinds = kinds.collect::<Option<_>>();
    kinds.expect("every line of cells.txt is valid")
});

/// The column definitions of each kind, as real API servers sent them. The keys are the last minor
/// version that sends them, and apiVersion and kind, such as `apps/v1/Deployment`. Most of those of
/// older API servers differ in descriptions only.
static COLUMNS: LazyLock<BTreeMap<u32, Columns>> = LazyLock::new(|| {
    let older = serde_json::from_str(include_str!("older_columns.json"));
    let newest = serde_json::from_str(include_str!("columns.json"));
    let mut minors: BTreeMap<u32, HashMap<String, Vec<ColumnDefinition>>> =
        older.expect("older_columns.json holds column definitions");
    minors.insert(
        u32::MAX,
        newest.expect("columns.json holds column definitions"),
    );
    let shared = minors.into_iter();
    shared.map(|(until, kinds)| (until, share(kinds))).collect()
});

type Columns = HashMap<String, Arc<[ColumnDefinition]>>;

fn share(kinds: HashMap<String, Vec<ColumnDefinition>>) -> Columns {
    let shared = kinds.into_iter();
    shared
        .map(|(kind, columns)| (kind, columns.into()))
        .collect()
}

fn kind(line: &'static str) -> Option<Kind> {
    let (head, cells) = line.split_once('|')?;
    let words: Vec<_> = head.split(' ').collect();
    let (name, minors) = match words.as_slice() {
        [name] => (*name, 0..=u32::MAX),
        [name, "until", minor] => (*name, 0..=minor.parse::<u32>().ok()?),
        [name, "since", minor] => (*name, minor.parse::<u32>().ok()?..=u32::MAX),
        _ => return None,
    };
    let cells = match cells {
        "pod" => Cells::Whole(pod::cells),
        "pod_until_34" => Cells::Whole(pod::cells_until_34),
        "quota" => Cells::Whole(access::quota),
        cells => Cells::Each(cells.split('|').map(rule).collect::<Option<_>>()?),
    };
    Some(Kind {
        name,
        minors,
        cells,
    })
}

fn rule(text: &'static str) -> Option<Rule> {
    let text = match text {
        "name" => "text metadata.name",
        "age" => "age metadata.creationTimestamp",
        // Go's zero time is what the API server prints for an absent creation time.
        "created" => "text metadata.creationTimestamp 0001-01-01T00:00:00Z",
        other => other,
    };
    let mut words = text.split(' ');
    let function = words.next()?;
    let (_, show) = SHOWS.iter().find(|(name, _)| *name == function)?;
    let steps = words.next()?.split('.');
    let path: Vec<_> = steps.filter(|step| !step.is_empty()).collect();
    (path.len() <= MAX_STEPS).then_some(Rule {
        show: *show,
        path,
        otherwise: words.next().unwrap_or_default(),
    })
}

impl Cells {
    /// Returns the cells of an object.
    pub(in crate::codec::table) fn of(&self, object: Part<'_>) -> Vec<Cell> {
        let rules = match self {
            Self::Each(rules) => rules,
            Self::Whole(cells) => return cells(object),
        };
        // The values on the path of the last rule. The next rule often begins with the same steps.
        let mut values = [object; MAX_STEPS + 1];
        let mut path: &[&str] = &[];
        let mut cells = Vec::with_capacity(rules.len());
        for rule in rules {
            let steps = path.iter().zip(&rule.path);
            let same = steps.take_while(|(last, step)| last == step).count();
            path = &rule.path;
            for (position, step) in path.iter().enumerate().skip(same) {
                values[position + 1] = values[position].at(step);
            }
            cells.push((rule.show)(values[path.len()], rule.otherwise));
        }
        cells
    }
}

/// Returns the columns and the cells of a kind for API servers of version 1.`minor`, or `None` if
/// the kind is not supported there.
pub(in crate::codec::table) fn built_in(
    api_version: &str,
    kind: &str,
    minor: u32,
) -> Option<(Arc<[ColumnDefinition]>, &'static Cells)> {
    let name = format!("{api_version}/{kind}");
    let cells = cells_of(&name, minor)?;
    let mut minors = COLUMNS.range(minor..);
    let columns = minors.find_map(|(_, kinds)| kinds.get(&name));
    Some((columns.cloned().unwrap_or_else(default_columns), cells))
}

fn cells_of(name: &str, minor: u32) -> Option<&'static Cells> {
    let mut kinds = KINDS.iter();
    let found = kinds.find(|kind| kind.name == name && kind.minors.contains(&minor));
    found.map(|kind| &kind.cells)
}

/// The apiVersion and kind of each kind that is supported for API servers of version 1.`minor`.
#[cfg(test)]
pub(in crate::codec::table) fn printed(
    minor: u32,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let kinds = KINDS.iter();
    let kinds = kinds.filter(move |kind| kind.minors.contains(&minor));
    kinds.filter_map(|kind| kind.name.rsplit_once('/'))
}

/// Returns the columns for kinds without a printer in the API server: Name and Created At.
pub(in crate::codec::table) fn default_columns() -> Arc<[ColumnDefinition]> {
    COLUMNS[&u32::MAX][DEFAULT].clone()
}

/// Returns the cells for kinds without a printer in the API server.
pub(in crate::codec::table) fn default_cells() -> &'static Cells {
    cells_of(DEFAULT, u32::MAX).expect("cells.txt has the cells of other kinds")
}
