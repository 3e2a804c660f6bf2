//! An explanation as text for people.

use std::fmt::Write as _;

use kubefan_proxy::server::{ExpectedOutcome, Explanation, StageOutcome};

/// The width of the first column.
const WIDTH: usize = 10;

/// Returns the explanation as a block of lines.
pub(super) fn text(explanation: &Explanation) -> String {
    let mut text = format!("{} {}\n", explanation.method, explanation.path);
    for stage in &explanation.stages {
        let mark = match stage.outcome {
            StageOutcome::Pass => "",
            StageOutcome::Forward => "forwarded: ",
            StageOutcome::Refuse => "refused: ",
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "  {:WIDTH$} {mark}{}", stage.stage, stage.detail);
    }
    let _ = writeln!(text, "{}", result(explanation));
    for change in &explanation.changes {
        let kind = change.kind.name();
        let _ = writeln!(text, "  {kind:WIDTH$} {}", change.text);
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
            format!("refuse ({status}): {message}")
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
    use kubefan_proxy::server::{Change, ChangeKind, ExplainedStage};

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
    }
}
