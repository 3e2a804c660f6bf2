//! An explanation as text for people.

use std::fmt::Write as _;

use kubefan_core::telemetry::visible;
use kubefan_proxy::server::{ChangeKind, ExpectedOutcome, Explanation, StageOutcome};

/// The width of the first column.
const WIDTH: usize = 10;

/// Returns the explanation as a block of lines. Names in it are from the request, so what a terminal
/// would obey is escaped.
pub(super) fn text(explanation: &Explanation) -> String {
    let mut text = format!(
        "{} {}\n",
        visible(&explanation.method),
        visible(&explanation.path)
    );
    for stage in &explanation.stages {
        let mark = match stage.outcome {
            StageOutcome::Pass => "",
            StageOutcome::Forward => "forwarded: ",
            StageOutcome::Refuse => "refused: ",
        };
        // Writing to a string never fails.
        let detail = visible(&stage.detail);
        let _ = writeln!(text, "  {:WIDTH$} {mark}{detail}", stage.stage);
    }
    let _ = writeln!(text, "{}", result(explanation));
    for change in &explanation.changes {
        let _ = match change.kind {
            // The text says that there is nothing to do.
            ChangeKind::Nothing => writeln!(text, "  {}", change.text),
            kind => writeln!(text, "  {:WIDTH$} {}", kind.name(), change.text),
        };
    }
    text
}

/// Returns the line about the result.
fn result(explanation: &Explanation) -> String {
    let reason = explanation.reason.as_deref().unwrap_or_default();
    let status = explanation.status.unwrap_or_default();
    let mut line = match (explanation.outcome, explanation.status) {
        (ExpectedOutcome::Hit, Some(_)) => format!("hit: kubefan repeats a {status}"),
        (ExpectedOutcome::Hit, None) if reason.is_empty() => "hit: a cache answers".to_owned(),
        (ExpectedOutcome::Hit, None) => format!("hit ({reason}): a cache answers in JSON"),
        (ExpectedOutcome::Forward, _) => format!("forward ({reason}): the API server answers"),
        (ExpectedOutcome::Refuse, _) => {
            let message = explanation.message.as_deref().unwrap_or_default();
            format!("refuse ({status}): {}", visible(message))
        }
    };
    if let Some(otherwise) = &explanation.otherwise {
        let _ = write!(
            line,
            "; if the API server does not prove it in time: forward ({otherwise})"
        );
    }
    if !explanation.changes.is_empty() {
        line.push_str("\nwhat to do:");
    }
    line
}

#[cfg(test)]
mod tests {
    use kubefan_proxy::server::{Change, ExplainedStage};

    use super::*;

    #[test]
    fn a_block_has_the_stages_the_result_and_the_changes() {
        let stage = |stage: &str, outcome, detail: &str| ExplainedStage {
            stage: stage.to_owned(),
            outcome,
            detail: detail.to_owned(),
        };
        let change = Change {
            kind: ChangeKind::Parameter,
            text: "nothing; `resourceVersion=0` reads from the cache".to_owned(),
        };
        let mut explanation = Explanation {
            method: "GET".to_owned(),
            path: "/api/v1/pods?limit=1".to_owned(),
            user: None,
            stages: vec![
                stage("decide", StageOutcome::Pass, "a cache may answer"),
                stage("prove", StageOutcome::Forward, "the API server is asked"),
            ],
            outcome: ExpectedOutcome::Forward,
            reason: Some("consistent".to_owned()),
            meaning: None,
            otherwise: None,
            status: None,
            message: None,
            changes: vec![change.clone()],
        };
        let expected = "\
GET /api/v1/pods?limit=1
  decide     a cache may answer
  prove      forwarded: the API server is asked
forward (consistent): the API server answers
what to do:
  parameter  nothing; `resourceVersion=0` reads from the cache
";
        assert_eq!(text(&explanation), expected);
        explanation.changes[0].kind = ChangeKind::Nothing;
        let text_without_kind = text(&explanation);
        let end = "what to do:\n  nothing; `resourceVersion=0` reads from the cache\n";
        assert!(text_without_kind.ends_with(end), "{text_without_kind}");
        explanation.outcome = ExpectedOutcome::Hit;
        explanation.reason = None;
        explanation.otherwise = Some("unproven".to_owned());
        let hit =
            "hit: a cache answers; if the API server does not prove it in time: forward (unproven)";
        assert!(text(&explanation).contains(hit), "{}", text(&explanation));
        explanation.outcome = ExpectedOutcome::Refuse;
        explanation.otherwise = None;
        explanation.status = Some(429);
        explanation.message = Some("too many".to_owned());
        explanation.changes.clear();
        assert!(text(&explanation).ends_with("refuse (429): too many\n"));
        explanation.path = "/api/\u{9b}31m".to_owned();
        explanation.stages[0].detail = "list pods in namespace \x1b[2J\nx".to_owned();
        explanation.message = Some("no \u{202e}".to_owned());
        let expected = "\
GET /api/\\u{9b}31m
  decide     list pods in namespace \\u{1b}[2J\\u{a}x
  prove      forwarded: the API server is asked
refuse (429): no \\u{202e}
";
        assert_eq!(text(&explanation), expected);
    }
}
