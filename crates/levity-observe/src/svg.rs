//! Graphs as SVG images.
//!
//! Labels contain texts of models. They appear only as escaped text, never as markup, and the image
//! has no script, style sheet, link or reference to another document. The number of boxes and the
//! length of each text are bounded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::visible::visible_line;

/// The maximum number of boxes.
const MAX_BOXES: usize = 2_000;
/// The maximum number of edges.
const MAX_EDGES: usize = 8_000;
/// The maximum depth of boxes in boxes.
const MAX_DEPTH: usize = 12;
/// The maximum number of characters of a line in a box, and of its tooltip.
const MAX_LINE: usize = 26;
const MAX_TITLE: usize = 200;

/// The size of a box without others in it: its width, and the height of a line.
const WIDTH: u32 = 200;
const LINE: u32 = 18;
/// The space around the content of a box.
const PAD: u32 = 10;
/// The space between boxes of neighbouring layers and rows.
const GAP: (u32, u32) = (48, 16);

/// A box of a graph.
pub(crate) struct SvgBox {
    /// The lines of text; the first is bold.
    pub(crate) lines: Vec<String>,
    /// The index of the box that contains it.
    pub(crate) parent: Option<usize>,
    /// The layer and the row among the boxes with the same parent.
    pub(crate) place: (u32, u32),
    /// The colours of the area and of the border.
    pub(crate) colours: (&'static str, &'static str),
}

/// An arrow between two boxes, by their indices.
pub(crate) struct SvgEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) dashed: bool,
}

/// The position and the size of a box in pixels.
#[derive(Clone, Copy, Default)]
struct Area {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

/// Renders a graph. Boxes beyond the limits are left out, and a line below the graph says how many.
pub(crate) fn svg(title: &str, boxes: &[SvgBox], edges: &[SvgEdge]) -> String {
    let mut graph = Graph::new(boxes);
    let size = graph.arrange(None, 0);
    graph.move_to(None, (PAD, PAD));
    let left_out = boxes.len() - graph.drawn();
    let footer = if left_out > 0 { 2 * LINE } else { 0 };
    let (width, height) = (size.0 + 2 * PAD, size.1 + 2 * PAD + footer);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{}</title>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#6e7781\"/></marker>\
         </defs>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escape(title, MAX_TITLE)
    );
    for (at, one) in boxes.iter().enumerate() {
        if let Some(area) = graph.areas[at] {
            draw_box(&mut out, one, area);
        }
    }
    for edge in edges.iter().take(MAX_EDGES) {
        let area = |at: usize| graph.areas.get(at).copied().flatten();
        if let (Some(from), Some(to)) = (area(edge.from), area(edge.to)) {
            draw_edge(&mut out, from, to, edge.dashed);
        }
    }
    if left_out > 0 {
        let y = height - PAD;
        let _ = writeln!(
            out,
            "<text x=\"{PAD}\" y=\"{y}\" fill=\"#1f1f1f\">… {left_out} more</text>"
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Writes a box with its lines. Viewers show all lines, in full length, while the pointer rests on
/// the box.
fn draw_box(out: &mut String, one: &SvgBox, area: Area) {
    let Area {
        x,
        y,
        width,
        height,
    } = area;
    let (fill, line) = one.colours;
    let title = one.lines.join(", ");
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
         rx=\"6\" fill=\"{fill}\" stroke=\"{line}\"/>",
        escape(&title, MAX_TITLE)
    );
    for (at, text) in (1..).zip(&one.lines) {
        let (x, y) = (x + PAD, y + PAD / 2 + LINE * at - 4);
        let weight = if at == 1 { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" fill=\"#1f1f1f\"{weight}>{}</text>",
            escape(text, MAX_LINE)
        );
    }
    out.push_str("</g>\n");
}

/// Writes an arrow from the right side of a box to the left side of another one.
fn draw_edge(out: &mut String, from: Area, to: Area, dashed: bool) {
    let (x1, y1) = (from.x + from.width, from.y + from.height / 2);
    let (x2, y2) = (to.x, to.y + to.height / 2);
    let bend = GAP.0 / 2;
    let (left, right) = (x1 + bend, x2.saturating_sub(bend));
    let dashes = if dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "<path d=\"M{x1} {y1}C{left} {y1} {right} {y2} {x2} {y2}\" fill=\"none\" \
         stroke=\"#6e7781\"{dashes} marker-end=\"url(#arrow)\"/>"
    );
}

/// The boxes with their areas; those that are not drawn have none.
struct Graph<'a> {
    boxes: &'a [SvgBox],
    /// The boxes in each box, in the order of their layers and rows.
    inside: BTreeMap<Option<usize>, Vec<usize>>,
    areas: Vec<Option<Area>>,
}

impl<'a> Graph<'a> {
    fn new(boxes: &'a [SvgBox]) -> Self {
        let mut inside: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (at, one) in boxes.iter().enumerate().take(MAX_BOXES) {
            inside.entry(one.parent).or_default().push(at);
        }
        for children in inside.values_mut() {
            children.sort_by_key(|at| boxes[*at].place);
        }
        Self {
            boxes,
            inside,
            areas: vec![None; boxes.len()],
        }
    }

    /// Returns the number of boxes that have an area.
    fn drawn(&self) -> usize {
        self.areas.iter().flatten().count()
    }

    /// Computes the areas of the boxes in a box, relative to its content, and returns the size of
    /// the content.
    fn arrange(&mut self, parent: Option<usize>, depth: usize) -> (u32, u32) {
        if depth >= MAX_DEPTH {
            return (0, 0);
        }
        let children = self.inside.get(&parent).cloned().unwrap_or_default();
        let (mut left, mut height, mut next) = (0, 0, 0);
        while let Some(&first) = children.get(next) {
            let layer = self.boxes[first].place.0;
            let (mut top, mut width) = (0, 0);
            while let Some(&at) = children.get(next)
                && self.boxes[at].place.0 == layer
            {
                let mut area = self.measure(at, depth);
                (area.x, area.y) = (left, top);
                top = area.y + area.height + GAP.1;
                width = width.max(area.width);
                self.areas[at] = Some(area);
                next += 1;
            }
            left += width + GAP.0;
            height = height.max(top.saturating_sub(GAP.1));
        }
        (left.saturating_sub(GAP.0), height)
    }

    /// Returns the size of a box, with the boxes in it below its text.
    fn measure(&mut self, at: usize, depth: usize) -> Area {
        let text = self.boxes[at].lines.len() as u32 * LINE + PAD;
        let (width, height) = self.arrange(Some(at), depth + 1);
        let inner = if height > 0 { height + PAD } else { 0 };
        Area {
            x: 0,
            y: 0,
            width: WIDTH.max(width + 2 * PAD),
            height: text + inner,
        }
    }

    /// Moves the boxes in a box to their final positions.
    fn move_to(&mut self, parent: Option<usize>, by: (u32, u32)) {
        let children = self.inside.get(&parent).cloned().unwrap_or_default();
        for at in children {
            let Some(area) = &mut self.areas[at] else {
                continue;
            };
            (area.x, area.y) = (area.x + by.0, area.y + by.1);
            let text = self.boxes[at].lines.len() as u32 * LINE + PAD;
            let inside = (area.x + PAD, area.y + text);
            self.move_to(Some(at), inside);
        }
    }
}

/// Returns a text on one line, cut and escaped.
fn escape(text: &str, max: usize) -> String {
    let mut out = String::new();
    for char in visible_line(text, max).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // These two are no characters of XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, parent: Option<usize>, place: (u32, u32)) -> SvgBox {
        SvgBox {
            lines: vec![text.to_owned()],
            parent,
            place,
            colours: ("#ffffff", "#000000"),
        }
    }

    #[test]
    fn texts_are_escaped_and_cut() {
        let hostile = "</text><script>alert('1')</script>\u{1b}[31m & \"x\"".repeat(9);
        let edge = SvgEdge {
            from: 0,
            to: 7,
            dashed: true,
        };
        let image = svg(&hostile, &[one(&hostile, None, (0, 0))], &[edge]);
        for part in ["<script", "href", "style", "\u{1b}", "'1'"] {
            assert!(!image.contains(part), "{part}: {image}");
        }
        assert!(image.contains("&lt;/text&gt;&lt;script&gt;"), "{image}");
        assert!(
            image.len() < 3_000 && image.ends_with("</svg>\n"),
            "{}",
            image.len()
        );
    }

    #[test]
    fn boxes_do_not_overlap_and_contain_their_children() {
        let boxes = [
            one("run", None, (0, 0)),
            one("a", Some(0), (0, 0)),
            one("b", Some(0), (0, 1)),
            one("c", Some(0), (1, 0)),
            one("inside b", Some(2), (0, 0)),
        ];
        let mut graph = Graph::new(&boxes);
        graph.arrange(None, 0);
        graph.move_to(None, (0, 0));
        let areas: Vec<Area> = graph.areas.iter().flatten().copied().collect();
        assert_eq!(areas.len(), boxes.len());
        let ends = |area: &Area| (area.x + area.width, area.y + area.height);
        for (child, parent) in [(1, 0), (2, 0), (3, 0), (4, 2)] {
            let (inner, outer) = (&areas[child], &areas[parent]);
            assert!(inner.x >= outer.x && inner.y >= outer.y);
            assert!(ends(inner).0 <= ends(outer).0 && ends(inner).1 <= ends(outer).1);
        }
        assert!(areas[2].y >= ends(&areas[1]).1, "rows are below each other");
        assert!(
            areas[3].x >= ends(&areas[2]).0,
            "layers are beside each other"
        );
    }

    #[test]
    fn boxes_beyond_the_limits_are_counted() {
        let chain: Vec<SvgBox> = (0..100)
            .map(|at: usize| one("x", at.checked_sub(1), (0, 0)))
            .collect();
        assert!(svg("", &chain, &[]).contains("… 88 more"));
        let many: Vec<SvgBox> = (0..3_000).map(|at| one("x", None, (0, at))).collect();
        let image = svg("", &many, &[]);
        assert!(image.contains("… 1000 more") && image.matches("<g>").count() == 2_000);
    }
}
