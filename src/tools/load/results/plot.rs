//! Line diagrams as SVG, in the colours of the page's style sheet.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
/// The approximate maximum number of points of a drawn line; more would not be visible.
const POINTS: usize = 400;
/// The ratio of the upper end of a linear y axis to the largest value, so
/// that no line touches the frame.
const HEADROOM: f64 = 1.04;
/// The maximum number of decades of a logarithmic axis; smaller values are drawn at its lower end.
const DECADES: i32 = 4;
/// The maximum number of labelled marks on a logarithmic axis; if there are more, only powers of
/// ten have a label.
const MAX_LABELLED_MARKS: usize = 12;
/// The maximum number of nines on a [`Scale::Tail`] axis, so the axis ends at 99.9999 % or before.
const NINES: f64 = 6.0;
/// The fraction of a [`Scale::Tail`] axis that shows the values below 90 %.
const BEFORE_TAIL: f64 = 0.4;

/// A line: its name and its points.
pub(crate) type Line<'a> = (&'a str, &'a [(f64, f64)]);

/// A line diagram.
pub(crate) struct Plot<'a> {
    /// The heading, which is also the label for screen readers.
    pub(crate) title: &'a str,
    pub(crate) x: Axis<'a>,
    pub(crate) y: Axis<'a>,
    pub(crate) lines: Vec<Line<'a>>,
}

/// An axis: its name and its scale.
pub(crate) type Axis<'a> = (&'a str, Scale);

/// The scale that maps values to positions on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear, from zero to the largest value.
    Linear,
    /// Logarithmic, from the smallest value to the largest.
    Logarithmic,
    /// Shares between 0 and 1, shown in percent. Above 90 % the scale is logarithmic: 90 % to 99 %
    /// takes as much space as 99 % to 99.9 %.
    Tail,
}

/// The range of values of an axis. For [`Scale::Tail`], `high` is a number of nines.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Plot<'_> {
    /// Draws the diagram as an SVG element.
    pub(crate) fn svg(&self) -> String {
        let ((x_name, x_scale), (y_name, y_scale)) = (self.x, self.y);
        let points = || self.lines.iter().flat_map(|(_, line)| line.iter());
        let x = Range::spanning(x_scale, points().map(|point| point.0));
        let room = match y_scale {
            Scale::Linear => HEADROOM,
            Scale::Logarithmic | Scale::Tail => 1.0,
        };
        let y = Range::spanning(y_scale, points().map(|point| point.1 * room));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(self.title)
        );
        draw_grid(&mut svg, x, y);
        // Writing to a String can't fail.
        let (middle, bottom) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 4.0);
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>",
            escape(x_name)
        );
        let middle = TOP + (HEIGHT - TOP - BOTTOM) / 2.0;
        let _ = write!(
            svg,
            "<text transform=\"translate(12 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(y_name)
        );
        for (index, (_, line)) in self.lines.iter().enumerate() {
            let _ = write!(
                svg,
                "<path class=\"line s{index}\" d=\"{}\"/>",
                path(line, x, y)
            );
        }
        svg.push_str("</svg>");
        svg
    }

    /// Formats the names of the lines in their colours as HTML. Returns an empty
    /// text if there is only one line.
    pub(crate) fn legend(&self) -> String {
        if self.lines.len() < 2 {
            return String::new();
        }
        let names: Vec<_> = self
            .lines
            .iter()
            .enumerate()
            .map(|(index, (name, _))| key(index, name))
            .collect();
        format!("<p class=\"legend\">{}</p>", names.join(" "))
    }
}

/// Draws the grid lines of both axes, each with its label.
fn draw_grid(svg: &mut String, x: Range, y: Range) {
    // Writing to a String can't fail.
    for (at, text) in x.ticks() {
        let at = LEFT + at * (WIDTH - LEFT - RIGHT);
        let (bottom, below) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 15.0);
        let _ = write!(svg, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>");
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{text}</text>"
        );
    }
    for (at, text) in y.ticks() {
        let at = HEIGHT - BOTTOM - at * (HEIGHT - TOP - BOTTOM);
        let (right, beside, base) = (WIDTH - RIGHT, LEFT - 6.0, at + 4.0);
        let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
        let _ = write!(
            svg,
            "<text x=\"{beside}\" y=\"{base:.1}\" text-anchor=\"end\">{text}</text>"
        );
    }
}

/// Formats a line's name after a sample of its colour, as HTML.
pub(crate) fn key(index: usize, name: &str) -> String {
    format!("<span class=\"key s{index}\">{}</span>", escape(name))
}

fn path(line: &[(f64, f64)], x: Range, y: Range) -> String {
    let every = line.len().div_ceil(POINTS).max(1);
    let last = line.len().saturating_sub(1);
    let shown = line
        .iter()
        .enumerate()
        .filter(|(index, _)| index % every == 0 || *index == last);
    let mut path = String::new();
    for (_, point) in shown {
        let command = if path.is_empty() { 'M' } else { 'L' };
        let at = (
            LEFT + x.position(point.0) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y.position(point.1) * (HEIGHT - TOP - BOTTOM),
        );
        let _ = write!(path, "{command}{:.1} {:.1}", at.0, at.1);
    }
    path
}

impl Range {
    fn spanning(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let high = values.clone().fold(0.0, f64::max);
        let (low, high) = match scale {
            Scale::Tail => {
                let nines = values.filter(|share| *share < 1.0).map(nines);
                // The axis reaches at least 99 %, which are two nines.
                (0.0, nines.fold(2.0, f64::max).ceil().min(NINES))
            }
            Scale::Linear => (0.0, if high > 0.0 { round_up(high) } else { 1.0 }),
            Scale::Logarithmic => {
                let least = values
                    .filter(|value| *value > 0.0)
                    .fold(f64::INFINITY, f64::min);
                let low = if least.is_finite() { least } else { 0.1 };
                let low = low.max(high / 10_f64.powi(DECADES));
                // The axis spans at least one decade.
                let (low, high) = (mark_below(low), mark_above(high));
                (low, high.max(low * 10.0))
            }
        };
        Self { scale, low, high }
    }

    /// Returns the position of a value on the axis, from 0 to 1. Values outside of the range are
    /// drawn at the ends of the axis.
    fn position(self, value: f64) -> f64 {
        let position = match self.scale {
            Scale::Logarithmic => {
                (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
            }
            Scale::Tail if value >= 1.0 => 1.0,
            Scale::Tail if value < 0.9 => value / 0.9 * BEFORE_TAIL,
            Scale::Tail => {
                BEFORE_TAIL + (1.0 - BEFORE_TAIL) * (nines(value) - 1.0) / (self.high - 1.0)
            }
            Scale::Linear => (value - self.low) / (self.high - self.low),
        };
        position.clamp(0.0, 1.0)
    }

    fn ticks(self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Logarithmic => {
                let values: Vec<_> = marks(self.low, self.high).collect();
                let are_few = values.len() <= MAX_LABELLED_MARKS;
                let text = |mark: f64| {
                    if are_few || is_power(mark) {
                        number(mark)
                    } else {
                        String::new()
                    }
                };
                values
                    .iter()
                    .map(|mark| (self.position(*mark), text(*mark)))
                    .collect()
            }
            Scale::Linear => (0..=4)
                .map(|quarter| self.low + (self.high - self.low) * f64::from(quarter) / 4.0)
                .map(|value| (self.position(value), number(value)))
                .collect(),
            Scale::Tail => {
                let mut ticks: Vec<_> =
                    ["0", "25", "50", "75", "90", "99", "99.9", "99.99", "99.999"]
                        .iter()
                        .map(|percent| {
                            let share = percent.parse().unwrap_or(0.0) / 100.0;
                            (self.position(share), format!("{percent} %"))
                        })
                        .filter(|(position, _)| *position < 0.99)
                        .collect();
                ticks.push((1.0, "max".to_owned()));
                ticks
            }
        }
    }
}

/// Returns the number of nines of a share, such as 2 for 0.99.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// Returns the multiples 1, 2 and 5 of the powers of ten between `low` and `high`.
fn marks(low: f64, high: f64) -> impl Iterator<Item = f64> {
    // The casts are safe: the logarithms of an axis's ends are small.
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (first..=last)
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit: f64| digit * 10_f64.powi(decade)));
    // The tolerance compensates rounding errors of the logarithm.
    all.filter(move |mark| *mark > low * 0.999 && *mark < high * 1.001)
}

fn mark_below(value: f64) -> f64 {
    marks(value / 10.0, value).last().unwrap_or(value)
}

fn mark_above(value: f64) -> f64 {
    marks(value, value * 10.0).next().unwrap_or(value)
}

fn is_power(mark: f64) -> bool {
    (mark.log10() - mark.log10().round()).abs() < 0.01
}

/// Rounds up to the next 1, 2, 4, 6 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    let enough = steps.iter().find(|step| **step * decade >= value);
    enough.map_or(value, |step| step * decade)
}

/// Formats a number briefly, such as `0.5`, `20k` or `3M`.
fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        value if value >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        value => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes text for HTML, also inside attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_cover_their_values_with_short_labels() {
        let texts = |scale, values: &[f64]| -> Vec<String> {
            let range = Range::spanning(scale, values.iter().copied());
            range.ticks().into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(
            texts(Scale::Tail, &[0.3, 1.0]),
            ["0 %", "25 %", "50 %", "75 %", "90 %", "max"]
        );
        assert_eq!(
            texts(Scale::Tail, &[0.999_6]),
            [
                "0 %", "25 %", "50 %", "75 %", "90 %", "99 %", "99.9 %", "max"
            ]
        );
        assert_eq!(
            texts(Scale::Linear, &[0.0, 31_000.0]),
            ["0", "10k", "20k", "30k", "40k"]
        );
        assert_eq!(
            texts(Scale::Logarithmic, &[0.0, 0.3, 25.0]),
            ["0.2", "0.5", "1", "2", "5", "10", "20", "50"]
        );
        assert_eq!(
            texts(Scale::Logarithmic, &[3.0, 4.0]),
            ["2", "5", "10", "20"]
        );
        // Values over more than four decades: only the largest four have marks, and only powers of
        // ten have labels.
        let mut wide = texts(Scale::Logarithmic, &[0.000_1, 300.0]);
        wide.retain(|text| !text.is_empty());
        assert_eq!(wide, ["0.1", "1", "10", "100"]);
        assert_eq!(texts(Scale::Logarithmic, &[]), ["0.1", "0.2", "0.5", "1"]);
        assert_eq!(texts(Scale::Linear, &[]), ["0", "0.25", "0.5", "0.75", "1"]);
        let places = |range: Range, table: &[(f64, f64)]| {
            for (value, position) in table {
                assert!((range.position(*value) - position).abs() < 1e-9, "{value}");
            }
        };
        let decades = Range::spanning(Scale::Logarithmic, [1.0, 100.0].into_iter());
        places(
            decades,
            &[
                (0.0, 0.0),
                (1.0, 0.0),
                (10.0, 0.5),
                (100.0, 1.0),
                (1e9, 1.0),
            ],
        );
        let tail = Range::spanning(Scale::Tail, [0.999_5].into_iter());
        places(
            tail,
            &[
                (0.0, 0.0),
                (0.45, 0.2),
                (0.9, 0.4),
                (0.99, 0.6),
                (0.999, 0.8),
                (1.0, 1.0),
            ],
        );
    }

    #[test]
    fn names_are_escaped() {
        let plot = Plot {
            title: "<a>",
            x: ("<b>", Scale::Linear),
            y: ("\"<c>\"", Scale::Linear),
            lines: vec![("<d>", &[(0.0, 1.0)]), ("'<e>'", &[])],
        };
        let drawn = plot.legend() + &plot.svg();
        for letter in ["a", "b", "c", "d", "e"] {
            assert!(!drawn.contains(&format!("<{letter}>")), "{drawn}");
            assert!(drawn.contains(&format!("&lt;{letter}&gt;")), "{drawn}");
        }
        assert!(drawn.contains("class=\"key s0\"") && drawn.contains("class=\"line s1\""));
        let one = Plot {
            lines: plot.lines[..1].to_vec(),
            ..plot
        };
        assert_eq!(one.legend(), "");
    }

    #[test]
    fn long_lines_keep_their_end() {
        let line: Vec<_> = (0..=10_000).map(|at| (f64::from(at), 1.0)).collect();
        let range = Range::spanning(Scale::Linear, line.iter().map(|point| point.0));
        let share = Range::spanning(Scale::Tail, [1.0].into_iter());
        let path = path(&line, range, share);
        assert!(path.matches('L').count() <= POINTS);
        assert!(
            path.ends_with(&format!("L{:.1} {TOP:.1}", WIDTH - RIGHT)),
            "{path}"
        );
    }
}
