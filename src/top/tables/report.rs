//! The report: all tables as text.

use super::rates::Rates;
use super::summary::{Part, counts, state};
use super::view::View;
use crate::pages::Pages;
use crate::text;

/// Returns the lines of the summary and the tables of all views as text for a file or a pipe.
pub(crate) fn report(pages: &Pages, url: &str) -> String {
    let rates = Rates::default();
    let mut report = line(&state(pages, url));
    report.push_str(&line(&counts(pages, &rates)));
    for view in View::ALL {
        let total = view.total(pages).map(|total| text::count(total as f64));
        let total = total.unwrap_or_else(|| text::UNKNOWN.to_owned());
        let table = view.content(pages, &rates).plain(view.sorted_by());
        report.push_str(&format!(
            "\n{} {total}\n{table}",
            view.name().to_uppercase()
        ));
    }
    report
}

fn line(parts: &[Part]) -> String {
    let texts: Vec<_> = parts.iter().map(|part| part.text.as_str()).collect();
    format!("{}\n", texts.join("  "))
}
