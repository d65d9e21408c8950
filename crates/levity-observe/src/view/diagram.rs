//! Plans as diagrams: Mermaid and Graphviz.
//!
//! Labels contain texts of models, so every character that has a meaning in the target language is
//! escaped. Node names are numbers, because ids may contain anything.

use std::fmt::Write as _;

use levity_dag::StepStatus;

use super::text::{one_line, time};
use super::{PlanView, StepView, edge_kind};
use crate::run_view::layout::layout;
use crate::svg::{SvgBox, SvgEdge, svg};

/// The maximum number of characters of a text.
const MAX_TEXT_CHARS: usize = 80;

/// The fill and line colours of each status.
const COLOURS: [(StepStatus, &str, &str); 6] = [
    (StepStatus::Pending, "#f2f2f2", "#8c8c8c"),
    (StepStatus::Running, "#d6e8ff", "#1f6feb"),
    (StepStatus::Waiting, "#fff3c4", "#b08800"),
    (StepStatus::Completed, "#d7f5dd", "#1a7f37"),
    (StepStatus::Failed, "#ffdcdc", "#cf222e"),
    (StepStatus::Skipped, "#ffffff", "#bbbbbb"),
];

impl PlanView {
    /// Renders the plan as a Mermaid flowchart, with a class for each status.
    ///
    /// The nodes are named `s0`, `s1` and so on in the order of the plan; ids and other texts are
    /// in escaped labels.
    ///
    /// ```
    /// use levity_dag::{Plan, Step};
    /// use levity_observe::PlanView;
    ///
    /// let plan = Plan::new().step(Step::new("a", "Coder")).step(Step::new("b", "QA").after("a"));
    /// let diagram = PlanView::of_plan(plan).mermaid();
    /// assert!(diagram.starts_with("flowchart TD\n"));
    /// assert!(diagram.contains("    s0 --> s1\n"));
    /// ```
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        let _ = writeln!(
            out,
            "    root([\"ROOT<br/>{}\"])",
            escape_mermaid(&self.goal)
        );
        for (at, step) in self.steps.iter().enumerate() {
            let label = label(step).map(|line| escape_mermaid(&line)).join("<br/>");
            let _ = writeln!(out, "    s{at}[\"{label}\"]:::{}", step.status.as_str());
        }
        self.for_each_edge(|from, to, style| {
            let arrow = if style.dashed { "-.->" } else { "-->" };
            let label = match style.label {
                Some(text) => format!("|\"{}\"|", escape_mermaid(&text)),
                None => String::new(),
            };
            let _ = writeln!(out, "    {from} {arrow}{label} {to}");
        });
        for (status, fill, line) in COLOURS {
            let _ = writeln!(
                out,
                "    classDef {} fill:{fill},stroke:{line},color:#1f1f1f",
                status.as_str()
            );
        }
        out
    }

    /// Renders the plan in the DOT language of Graphviz, with a colour for each status.
    ///
    /// The nodes are named `s0`, `s1` and so on in the order of the plan; ids and other texts are
    /// in escaped labels.
    ///
    /// ```
    /// use levity_dag::{Plan, Step};
    /// use levity_observe::PlanView;
    ///
    /// let plan = Plan::new().step(Step::new("a", "Coder")).step(Step::new("b", "QA").after("a"));
    /// let diagram = PlanView::of_plan(plan).dot();
    /// assert!(diagram.starts_with("digraph plan {\n"));
    /// assert!(diagram.contains("    s0 -> s1 [style=solid];\n"));
    /// ```
    pub fn dot(&self) -> String {
        let mut out = String::from(
            "digraph plan {\n    node [shape=box, style=\"rounded,filled\", \
                fontname=\"sans-serif\"];\n",
        );
        let _ = writeln!(
            out,
            "    root [label=\"ROOT\\n{}\", shape=ellipse, fillcolor=\"#ffffff\"];",
            escape_dot(&self.goal)
        );
        for (at, step) in self.steps.iter().enumerate() {
            let label = label(step).map(|line| escape_dot(&line)).join("\\n");
            let (fill, line) = colours(step.status);
            let status = step.status.as_str();
            let _ = writeln!(
                out,
                "    s{at} [label=\"{label}\", class=\"{status}\", fillcolor=\"{fill}\", \
                    color=\"{line}\"];"
            );
        }
        self.for_each_edge(|from, to, style| {
            let dashed = if style.dashed {
                "style=dashed"
            } else {
                "style=solid"
            };
            let label = style.label.map_or(String::new(), |text| {
                format!(", label=\"{}\"", escape_dot(&text))
            });
            let _ = writeln!(out, "    {from} -> {to} [{dashed}{label}];");
        });
        out.push_str("}\n");
        out
    }

    /// Renders the plan as an SVG image in layers, with a colour for each status.
    ///
    /// Ids and other texts of models appear only as escaped text. The image has no script and no
    /// reference to another document. It has at most 2,000 steps; a line below the graph counts the
    /// others.
    ///
    /// ```
    /// use levity_dag::{Plan, Step};
    /// use levity_observe::PlanView;
    ///
    /// let plan = Plan::new().step(Step::new("a", "Coder")).step(Step::new("b", "QA").after("a"));
    /// let image = PlanView::of_plan(plan).svg();
    /// assert!(image.starts_with("<svg ") && image.contains(">Coder</text>"));
    /// ```
    pub fn svg(&self) -> String {
        let pairs = self
            .edges
            .iter()
            .map(|(from, to)| (*from as usize, *to as usize));
        let pairs: Vec<(usize, usize)> = pairs.collect();
        let places = layout(self.steps.len(), &pairs);
        let boxes: Vec<SvgBox> = self
            .steps
            .iter()
            .zip(places)
            .map(|(step, place)| SvgBox {
                lines: label(step).to_vec(),
                parent: None,
                place,
                colours: colours(step.status),
            })
            .collect();
        let edge = |&(from, to): &(u32, u32)| SvgEdge {
            from: from as usize,
            to: to as usize,
            dashed: self.style(from, to).dashed,
        };
        let edges: Vec<SvgEdge> = self.edges.iter().map(edge).collect();
        svg(&self.goal, &boxes, &edges)
    }

    /// Calls `draw` for each edge with the names of its ends, those from the root first.
    fn for_each_edge(&self, mut draw: impl FnMut(&str, &str, Style)) {
        for (at, step) in self.steps.iter().enumerate() {
            if step.before.is_empty() {
                draw("root", &format!("s{at}"), Style::default());
            }
        }
        for &(from, to) in &self.edges {
            draw(&format!("s{from}"), &format!("s{to}"), self.style(from, to));
        }
    }

    fn style(&self, from: u32, to: u32) -> Style {
        let step = |at: u32| self.plan.as_ref()?.steps.get(at as usize);
        let Some((from, to)) = step(from).zip(step(to)) else {
            return Style::default();
        };
        let kind = edge_kind(from, to);
        let condition = kind.when.map(|when| format!("if {when}"));
        let label = if kind.is_fallback {
            Some("on failure".to_owned())
        } else {
            condition
        };
        Style {
            dashed: label.is_some(),
            label,
        }
    }
}

/// The style of an edge.
#[derive(Default)]
struct Style {
    dashed: bool,
    label: Option<String>,
}

fn colours(status: StepStatus) -> (&'static str, &'static str) {
    COLOURS
        .iter()
        .find(|(one, ..)| *one == status)
        .map_or(("#ffffff", "#000000"), |(_, fill, line)| (fill, line))
}

/// Returns the lines in the box of a step: its id, its agent and its status.
fn label(step: &StepView) -> [String; 3] {
    let agent = if step.agent.is_empty() {
        "code"
    } else {
        &step.agent
    };
    let mut status_text = step.status.as_str().to_owned();
    if let Some(items) = step.items {
        let _ = write!(status_text, " {}/{}", items.done, items.total);
    }
    if let Some(took) = step.took(None) {
        let _ = write!(status_text, " in {}", time(took));
    }
    [step.id.as_str().to_owned(), agent.to_owned(), status_text]
}

/// Escapes a text for a quoted label of Mermaid: every special character becomes its number.
fn escape_mermaid(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in one_line(text, MAX_TEXT_CHARS).chars() {
        match char {
            ' ' | '_' | '.' | ',' | '/' | '…' => out.push(char),
            char if char.is_alphanumeric() => out.push(char),
            char => {
                let _ = write!(out, "#{};", u32::from(char));
            }
        }
    }
    out
}

/// Escapes a text for a quoted label of Graphviz.
fn escape_dot(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in one_line(text, MAX_TEXT_CHARS).chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Graphviz interprets HTML entities in every label.
            '&' => out.push_str("&amp;"),
            char => out.push(char),
        }
    }
    out
}
