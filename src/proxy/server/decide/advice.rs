//! What makes a cache answer requests that are forwarded for a [`Reason`].

use std::collections::HashMap;
use std::sync::LazyLock;

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::Reason;

/// What a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// A setting of kubefan.
    Flag,
    /// A right of the caller or of kubefan.
    Right,
    /// A header of the request, or its credentials.
    Header,
    /// A parameter of the request, such as a selector.
    Parameter,
    /// The path of the request.
    Path,
    /// Nothing but time.
    Time,
    /// A fault, whose cause has to be found.
    Fault,
    /// Nothing: the API server has to answer such requests.
    Nothing,
}

impl ChangeKind {
    /// Returns the name of the kind, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Right => "right",
            Self::Header => "header",
            Self::Parameter => "parameter",
            Self::Path => "path",
            Self::Time => "time",
            Self::Fault => "fault",
            Self::Nothing => "nothing",
        }
    }
}

/// What makes a cache answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) kind: ChangeKind,
    /// What to do. `docs/reasons.md` has this text, too.
    pub(crate) text: &'static str,
}

// The longer texts, each for the reason of its name.
const CALLER_IDENTITY: &str = "With `--auth none` nothing: kubefan has no cache of what another user \
                               may read; otherwise send a token, or a certificate of an authority \
                               that kubefan knows";
const NON_RESOURCE: &str =
    "nothing; documents are answered after the API server has confirmed them";
const TABLE: &str = "nothing; `kubectl get -o json` and `-o yaml` are answered by the cache";
const TABLE_UNCHECKED: &str = "nothing: it is over after the first comparison. While the resource \
                               has no objects, there is nothing to compare";
const PARTIAL_METADATA: &str = "ask for `v1` of `PartialObjectMetadata`, or of `autoscaling/v2`";
const AGGREGATED: &str =
    "nothing if it is aggregated; otherwise let kubefan list and watch `apiservices`";
const SECRETS: &str = "`--cache-secrets`, if kubefan may hold Secrets in memory";
const UNKNOWN_FIELD: &str = "select by another field; of custom resources those in \
                             `selectableFields` can be used";
const OUT_OF_SCOPE: &str = "select only what `cache.resources` includes, or include more";
const NOT_CACHED: &str = "nothing: the cache is filling, or only later reads start one. A GET, a \
                          \"most recent\" LIST of Events, as by `kubectl describe`, and the first \
                          Table of a resource start none. `--resource` starts it with kubefan";
const NOT_AUTHORIZED: &str = "give the user the right, if the API server refuses it; the first read \
                              of a user may have this reason once. If an authorizer may forbid \
                              single names, a GET has it while the right to its name is not known \
                              (reads by name)";
const CONSISTENT: &str = "nothing; `resourceVersion=0` reads from the cache";
const UNPROVEN: &str = "look at `/readyz?verbose`: the API server is slow, or the watch is behind. \
                        If the upstream is a kubefan, make it `strict` (sessions)";
const AHEAD_OF_CACHE: &str =
    "nothing, if it is rare; otherwise look at `kubefan_upstream_watch_age_seconds`";
const PAST_STATE: &str = "nothing: a next page, or an exact version, that kubefan does not have any \
                          more. Larger pages need fewer requests";

/// The meaning of each reason by its name: the comments in `reason.rs`.
static MEANINGS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let schema = schema_for!(Reason);
    let variants = schema.get("oneOf").and_then(|variants| variants.as_array());
    let variants = variants.into_iter().flatten();
    let text = |variant: &serde_json::Value, key: &str| variant[key].as_str().map(str::to_owned);
    let meanings = variants.filter_map(|variant| {
        let meaning = text(variant, "description")?.replace('\n', " ");
        let meaning = meaning.trim_end_matches('.').to_owned();
        Some((text(variant, "const")?, meaning))
    });
    meanings.collect()
});

impl Reason {
    /// Returns what the reason means, in one or two sentences without the last full stop.
    pub fn meaning(self) -> &'static str {
        MEANINGS.get(self.name()).map_or("", String::as_str)
    }

    /// Returns what makes a cache answer such requests.
    pub(crate) fn advice(self) -> Advice {
        let (kind, text) = advice(self);
        Advice { kind, text }
    }
}

fn advice(reason: Reason) -> (ChangeKind, &'static str) {
    use ChangeKind::{Fault, Flag, Header, Nothing, Parameter, Path, Right, Time};
    match reason {
        Reason::CallerIdentity => (Header, CALLER_IDENTITY),
        Reason::Upgrade | Reason::NotGet | Reason::Subresource | Reason::NotWatchable => {
            (Nothing, "nothing")
        }
        Reason::NonResource => (Nothing, NON_RESOURCE),
        Reason::EmptySegment => (Path, "send the path without `//`"),
        Reason::DeprecatedPath => (Path, "send `?watch=1` instead of `/watch/`"),
        Reason::Table => (Header, TABLE),
        Reason::TableUnchecked => (Time, TABLE_UNCHECKED),
        Reason::TableDiffers => (Fault, "report it, with the log line that names the cell"),
        Reason::PartialMetadata => (Header, PARTIAL_METADATA),
        Reason::MediaType => (Header, "ask for JSON or protobuf"),
        Reason::Malformed => (Parameter, "see the API server's answer"),
        Reason::Unknown => (Path, "correct the name, or define the resource"),
        Reason::WrongPath => (Path, "correct the path"),
        Reason::Aggregated => (Right, AGGREGATED),
        Reason::Secrets => (Flag, SECRETS),
        Reason::Never => (Flag, "remove it from `cache.never`, if it should be cached"),
        Reason::UnknownField => (Parameter, UNKNOWN_FIELD),
        Reason::OutOfScope => (Parameter, OUT_OF_SCOPE),
        Reason::ShardSelector => (Flag, "`--shard-selector serve`"),
        Reason::NotCached => (Time, NOT_CACHED),
        Reason::NotAuthorized => (Right, NOT_AUTHORIZED),
        Reason::Forbidden => (Right, "let kubefan list and watch the resource"),
        Reason::NoSuchFormat => (Header, "ask for JSON"),
        Reason::Consistent => (Parameter, CONSISTENT),
        Reason::Unproven => (Fault, UNPROVEN),
        Reason::CacheDiffers => (Fault, "report it, with the log lines about the resource"),
        Reason::AheadOfCache => (Time, AHEAD_OF_CACHE),
        Reason::PastState => (Parameter, PAST_STATE),
        Reason::ShuttingDown => (Time, "nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASONS: [Reason; 32] = [
        Reason::CallerIdentity,
        Reason::Upgrade,
        Reason::NotGet,
        Reason::NonResource,
        Reason::EmptySegment,
        Reason::Subresource,
        Reason::DeprecatedPath,
        Reason::Table,
        Reason::TableUnchecked,
        Reason::TableDiffers,
        Reason::PartialMetadata,
        Reason::MediaType,
        Reason::Malformed,
        Reason::Unknown,
        Reason::WrongPath,
        Reason::NotWatchable,
        Reason::Aggregated,
        Reason::Secrets,
        Reason::Never,
        Reason::UnknownField,
        Reason::OutOfScope,
        Reason::ShardSelector,
        Reason::NotCached,
        Reason::NotAuthorized,
        Reason::Forbidden,
        Reason::NoSuchFormat,
        Reason::Consistent,
        Reason::Unproven,
        Reason::CacheDiffers,
        Reason::AheadOfCache,
        Reason::PastState,
        Reason::ShuttingDown,
    ];

    /// `docs/reasons.md` has a row for each reason. Its second cell is the meaning, and its last one
    /// the advice.
    #[test]
    fn the_page_of_the_reasons_has_the_meanings_and_the_advice() {
        let page = include_str!("../../../../docs/reasons.md");
        assert_eq!(MEANINGS.len(), REASONS.len(), "the schema has all reasons");
        for reason in REASONS {
            let start = format!("| `{}` | ", reason.name());
            let row = page.lines().find_map(|line| line.strip_prefix(&start));
            let row = row.unwrap_or_else(|| panic!("no row for {reason:?}"));
            let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
            let [meaning, _, advice] = cells[..] else {
                panic!("{row}");
            };
            assert_eq!(meaning, reason.meaning());
            assert_eq!(without_links(advice), reason.advice().text);
        }
    }

    /// Returns `text` with only the texts of its links.
    fn without_links(text: &str) -> String {
        let mut plain = String::new();
        let mut parts = text.split('[');
        plain.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let (label, rest) = part.split_once("](").expect("a link");
            let (_, rest) = rest.split_once(')').expect("a target");
            plain.push_str(label);
            plain.push_str(rest);
        }
        plain
    }
}
