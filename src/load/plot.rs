//! Lines drawn as SVG, in the page's own colours.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
/// Points of a line; more would not be seen.
const POINTS: usize = 400;

/// Its name and its points.
type Line<'a> = (&'a str, &'a [(f64, f64)]);

/// A diagram.
pub(super) struct Plot<'a> {
    /// What it shows, for those who can't see it.
    pub(super) title: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) lines: Vec<Line<'a>>,
}

/// An axis.
#[derive(Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    pub(super) scale: Scale,
}

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero to the greatest value.
    Linear,
    /// By powers of ten, from the smallest value to the greatest.
    Logarithmic,
    /// From 0 to 1, told in percent.
    Share,
}

/// The ends of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Plot<'_> {
    /// The diagram.
    pub(super) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|(_, line)| line.iter());
        let x = Range::of(self.x.scale, points().map(|point| point.0));
        let y = Range::of(self.y.scale, points().map(|point| point.1));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(self.title)
        );
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
        let (middle, bottom) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 4.0);
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>",
            escape(self.x.name)
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

    /// The names of the lines, in their colours, and what the vertical axis is.
    pub(super) fn legend(&self) -> String {
        let name = |(index, (name, _)): (usize, &Line<'_>)| {
            format!("<span class=\"key s{index}\">{}</span>", escape(name))
        };
        let names: Vec<_> = self.lines.iter().enumerate().map(name).collect();
        format!(
            "<p class=\"legend\">{}: {}</p>",
            escape(self.y.name),
            names.join(" ")
        )
    }
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
            LEFT + x.place(point.0) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y.place(point.1) * (HEIGHT - TOP - BOTTOM),
        );
        let _ = write!(path, "{command}{:.1} {:.1}", at.0, at.1);
    }
    path
}

impl Range {
    fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let high = values.clone().fold(0.0, f64::max);
        let (low, high) = match scale {
            Scale::Share => (0.0, 1.0),
            Scale::Linear => (0.0, if high > 0.0 { nice(high) } else { 1.0 }),
            Scale::Logarithmic => {
                let low = values
                    .filter(|value| *value > 0.0)
                    .fold(f64::INFINITY, f64::min);
                let low = if low.is_finite() { low } else { 0.1 };
                // At least a decade.
                let low = 10_f64.powf(low.log10().floor());
                (low, 10_f64.powf(high.max(low * 10.0).log10().ceil()))
            }
        };
        Self { scale, low, high }
    }

    /// From 0 to 1.
    fn place(self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Logarithmic => {
                (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
            }
            _ => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    fn ticks(self) -> Vec<(f64, String)> {
        let values: Vec<f64> = match self.scale {
            Scale::Logarithmic => {
                let decades = (self.high / self.low).log10().round() as i32;
                (0..=decades)
                    .map(|decade| self.low * 10_f64.powi(decade))
                    .collect()
            }
            _ => (0..=4)
                .map(|quarter| self.low + (self.high - self.low) * f64::from(quarter) / 4.0)
                .collect(),
        };
        let text = |value: f64| match self.scale {
            Scale::Share => format!("{:.0} %", value * 100.0),
            _ => number(value),
        };
        values
            .into_iter()
            .map(|value| (self.place(value), text(value)))
            .collect()
    }
}

/// The next number up that ends in zeros.
fn nice(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    let enough = steps.iter().find(|step| **step * decade >= value);
    enough.map_or(value, |step| step * decade)
}

/// As short as it can be told.
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

/// Text that stands in HTML or an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_their_values_and_are_told_in_short() {
        let texts = |scale, values: &[f64]| -> Vec<String> {
            let range = Range::of(scale, values.iter().copied());
            range.ticks().into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(
            texts(Scale::Share, &[0.3]),
            ["0 %", "25 %", "50 %", "75 %", "100 %"]
        );
        assert_eq!(
            texts(Scale::Linear, &[0.0, 31_000.0]),
            ["0", "10k", "20k", "30k", "40k"]
        );
        assert_eq!(
            texts(Scale::Logarithmic, &[0.0, 0.3, 25.0]),
            ["0.1", "1", "10", "100"]
        );
        assert_eq!(texts(Scale::Logarithmic, &[]), ["0.1", "1"]);
        assert_eq!(texts(Scale::Linear, &[]), ["0", "0.25", "0.5", "0.75", "1"]);
        let range = Range::of(Scale::Logarithmic, [1.0, 100.0].into_iter());
        for (value, place) in [
            (0.0, 0.0),
            (1.0, 0.0),
            (10.0, 0.5),
            (100.0, 1.0),
            (1e9, 1.0),
        ] {
            assert!((range.place(value) - place).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn long_lines_keep_their_end() {
        let line: Vec<_> = (0..=10_000).map(|at| (f64::from(at), 1.0)).collect();
        let range = Range::of(Scale::Linear, line.iter().map(|point| point.0));
        let share = Range::of(Scale::Share, [1.0].into_iter());
        let path = path(&line, range, share);
        assert!(path.matches('L').count() <= POINTS);
        assert!(
            path.ends_with(&format!("L{:.1} {TOP:.1}", WIDTH - RIGHT)),
            "{path}"
        );
    }
}
