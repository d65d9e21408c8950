//! A plan as a tree of lines.
//!
//! A plan is a graph, and a tree shows each step once. The drawn parent is the one that finished
//! last, because it released the step. Drawing uses a stack and no recursion: a plan can be a chain
//! of 20,000 steps.

use std::fmt::Write as _;

use levity_core::Timestamp;
use levity_dag::StepStatus;

use super::text::{one_line, time};
use super::{PlanView, StepView};

/// Options for rendering a tree.
///
/// ```
/// use levity_dag::{Plan, Step};
/// use levity_observe::{PlanView, TreeOptions};
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").writes(["page"]))
///     .step(Step::new("sum", "Summarizer").reads(["page"]));
/// let view = PlanView::of_plan(plan).with_goal("tides");
/// let tree = view.tree(TreeOptions::new().ascii().width(60));
/// assert_eq!(tree, "ROOT tides\n`-- fetch [ ] Retriever\n    `-- sum [ ] Summarizer\n");
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TreeOptions {
    /// Draws with ASCII characters only if `true`.
    pub ascii: bool,
    /// The maximum number of characters in a line; 100 by default.
    pub width: usize,
    /// The maximum number of drawn children of one step; 20 by default. Running, waiting and failed
    /// children come first.
    pub max_children: usize,
    /// The maximum number of lines; 1,000 by default.
    pub max_lines: usize,
    /// The current time, for the duration of running steps; the time of the last event by default.
    pub now: Option<Timestamp>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            ascii: false,
            width: 100,
            max_children: 20,
            max_lines: 1_000,
            now: None,
        }
    }
}

impl TreeOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Draws with ASCII characters only. Texts are unchanged.
    #[must_use]
    pub fn ascii(mut self) -> Self {
        self.ascii = true;
        self
    }

    /// Sets the maximum number of characters in a line.
    #[must_use]
    pub fn width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    /// Sets the maximum number of drawn children of one step.
    #[must_use]
    pub fn max_children(mut self, children: usize) -> Self {
        self.max_children = children;
        self
    }

    /// Sets the maximum number of lines.
    #[must_use]
    pub fn max_lines(mut self, lines: usize) -> Self {
        self.max_lines = lines;
        self
    }

    /// Sets the current time.
    #[must_use]
    pub fn now(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// Returns the symbol of a status.
    ///
    /// ```
    /// use levity_dag::StepStatus;
    /// use levity_observe::TreeOptions;
    ///
    /// assert_eq!(TreeOptions::new().mark(StepStatus::Completed), "✓");
    /// assert_eq!(TreeOptions::new().ascii().mark(StepStatus::Completed), "[x]");
    /// ```
    pub fn mark(&self, status: StepStatus) -> &'static str {
        match (status, self.ascii) {
            (StepStatus::Pending, false) => "○",
            (StepStatus::Running, false) => "◐",
            (StepStatus::Waiting, false) => "◌",
            (StepStatus::Completed, false) => "✓",
            (StepStatus::Failed, false) => "✗",
            (StepStatus::Skipped, false) => "⊘",
            (StepStatus::Pending, true) => "[ ]",
            (StepStatus::Running, true) => "[>]",
            (StepStatus::Waiting, true) => "[?]",
            (StepStatus::Completed, true) => "[x]",
            (StepStatus::Failed, true) => "[!]",
            (StepStatus::Skipped, true) => "[-]",
            (_, false) => "·",
            (_, true) => "[.]",
        }
    }

    fn branches(&self) -> [&'static str; 4] {
        match self.ascii {
            false => ["├── ", "└── ", "│   ", "    "],
            true => ["|-- ", "`-- ", "|   ", "    "],
        }
    }
}

/// The maximum number of levels with branch lines; deeper lines show the nearest levels.
const MAX_LEVELS: usize = 12;
/// The maximum number of characters of an id.
const MAX_ID_CHARS: usize = 60;
/// The maximum number of other parents that are mentioned.
const MAX_MENTIONED: usize = 3;

impl PlanView {
    /// Renders the plan as a tree, with the status of each step.
    ///
    /// Each step appears once: below the parent that was settled last, or below the first parent
    /// while some are not settled. The other parents are mentioned. No text can control the
    /// terminal.
    pub fn tree(&self, options: TreeOptions) -> String {
        let before = self.before();
        let children = self.children(&before);
        let mut tree = Tree {
            view: self,
            options,
            before,
            children,
            out: String::new(),
            lines: 0,
        };
        tree.draw();
        tree.out
    }

    /// Returns the steps directly before each step.
    fn before(&self) -> Vec<Vec<u32>> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.steps.len()];
        for &(from, to) in &self.edges {
            if let Some(list) = before.get_mut(to as usize) {
                list.push(from);
            }
        }
        before
    }

    /// Returns the steps that are drawn below each step; the last entry has those below the root.
    fn children(&self, before: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let parent: Vec<usize> = before
            .iter()
            .map(|list| self.parent(list).map_or(self.steps.len(), |p| p as usize))
            .collect();
        let mut children = vec![Vec::new(); self.steps.len() + 1];
        for (at, drawn_parent) in break_cycles(parent).into_iter().enumerate() {
            children[drawn_parent].push(at as u32);
        }
        children
    }

    fn parent(&self, before: &[u32]) -> Option<u32> {
        let steps = || {
            before
                .iter()
                .filter_map(|at| Some((*at, self.steps.get(*at as usize)?)))
        };
        match steps().all(|(_, step)| step.status.is_settled() && step.ended.is_some()) {
            true => steps()
                .max_by_key(|(at, step)| (step.ended, *at))
                .map(|(at, _)| at),
            false => before.first().copied(),
        }
    }
}

/// Moves each step that leads back to itself to the root, so that all steps are drawn.
fn break_cycles(mut parent: Vec<usize>) -> Vec<usize> {
    let root = parent.len();
    // 0: not visited, `n`: visited in the n-th walk.
    let mut walk = vec![0; root];
    for begin in 0..root {
        let mut at = begin;
        while at < root && walk[at] == 0 {
            walk[at] = begin + 1;
            at = parent[at];
        }
        if at < root && walk[at] == begin + 1 {
            parent[at] = root;
        }
    }
    parent
}

struct Tree<'a> {
    view: &'a PlanView,
    options: TreeOptions,
    before: Vec<Vec<u32>>,
    children: Vec<Vec<u32>>,
    out: String,
    lines: usize,
}

/// A line that is still to be drawn.
enum PendingLine {
    Step { at: u32, last: bool, depth: usize },
    Omitted { text: String, depth: usize },
}

impl Tree<'_> {
    fn draw(&mut self) {
        let goal = if self.view.goal.is_empty() {
            "plan"
        } else {
            &self.view.goal
        };
        self.line(&format!("ROOT {}", one_line(goal, self.options.width)));
        let mut stack = Vec::new();
        // For each level being drawn, `true` if more lines follow on it.
        let mut open: Vec<bool> = Vec::new();
        self.push(self.view.steps.len(), 0, &mut stack);
        while let Some(next) = stack.pop() {
            if self.lines + 1 >= self.options.max_lines.max(2) && !stack.is_empty() {
                let more = stack
                    .iter()
                    .filter(|next| matches!(next, PendingLine::Step { .. }))
                    .count()
                    + 1;
                self.line(&format!("{} {more} more, and their children", self.dots()));
                return;
            }
            let (text, depth, last, below) = match next {
                PendingLine::Step { at, last, depth } => {
                    (self.step(at), depth, last, Some(at as usize))
                }
                PendingLine::Omitted { text, depth } => (text, depth, true, None),
            };
            open.truncate(depth);
            let prefix = self.prefix(&open, last);
            self.line(&format!("{prefix}{text}"));
            open.push(!last);
            if let Some(at) = below {
                self.push(at, depth + 1, &mut stack);
            }
        }
    }

    fn prefix(&self, open: &[bool], last: bool) -> String {
        let [branch, end, line, space] = self.options.branches();
        let skipped = open.len().saturating_sub(MAX_LEVELS);
        let mut prefix = match skipped {
            0 => String::new(),
            levels => format!("{}{levels} ", self.dots()),
        };
        for more in &open[skipped..] {
            prefix.push_str(if *more { line } else { space });
        }
        prefix + if last { end } else { branch }
    }

    fn push(&mut self, of: usize, depth: usize, stack: &mut Vec<PendingLine>) {
        let all = std::mem::take(&mut self.children[of]);
        let (drawn, omitted) = self.choose_children(&all);
        if !omitted.is_empty() {
            stack.push(PendingLine::Omitted {
                text: self.omitted_text(&omitted),
                depth,
            });
        }
        let cut = !omitted.is_empty();
        for (place, at) in drawn.iter().enumerate().rev() {
            stack.push(PendingLine::Step {
                at: *at,
                last: !cut && place + 1 == drawn.len(),
                depth,
            });
        }
    }

    /// Returns the children to draw, in the order of the plan, and the omitted ones.
    fn choose_children(&self, all: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let limit = self.options.max_children.max(1);
        if all.len() <= limit {
            return (all.to_vec(), Vec::new());
        }
        let mut by_priority = all.to_vec();
        by_priority.sort_by_key(|at| priority(self.view.steps[*at as usize].status));
        let mut omitted = by_priority.split_off(limit);
        by_priority.sort_unstable();
        omitted.sort_unstable();
        (by_priority, omitted)
    }

    fn omitted_text(&self, omitted: &[u32]) -> String {
        let mut text = format!("{} {} more", self.dots(), omitted.len());
        let mut between = " (";
        for status in STATUSES {
            let count = omitted
                .iter()
                .filter(|at| self.view.steps[**at as usize].status == status)
                .count();
            if count > 0 {
                let _ = write!(text, "{between}{count} {}", status.as_str());
                between = ", ";
            }
        }
        text + ")"
    }

    fn dots(&self) -> &'static str {
        if self.options.ascii { "..." } else { "…" }
    }

    fn step(&self, at: u32) -> String {
        let step = &self.view.steps[at as usize];
        let mut text = format!(
            "{} {}",
            one_line(step.id.as_str(), MAX_ID_CHARS),
            self.options.mark(step.status)
        );
        let agent = if step.agent.is_empty() {
            "code"
        } else {
            &step.agent
        };
        let _ = write!(text, " {}", one_line(agent, MAX_ID_CHARS));
        if let Some(items) = step.items {
            let _ = write!(text, " {}/{}", items.done, items.total);
        }
        if step.attempt > 1 {
            let _ = write!(text, " attempt {}", step.attempt);
        }
        if let Some(took) = step.took(self.options.now.or(self.view.last)) {
            let _ = write!(text, " {}", time(took));
        }
        self.mention_other_parents(at, &mut text);
        let detail = match (&step.error, step.status) {
            (Some(error), _) => one_line(error, self.options.width),
            (None, StepStatus::Running | StepStatus::Waiting) => step.activity.to_string(),
            _ => String::new(),
        };
        if !detail.is_empty() {
            let _ = write!(text, ": {detail}");
        }
        text
    }

    /// Mentions the other parents of a step.
    fn mention_other_parents(&self, at: u32, text: &mut String) {
        let before = &self.before[at as usize];
        if before.len() < 2 {
            return;
        }
        let drawn_parent = self.view.parent(before);
        let others: Vec<&StepView> = before
            .iter()
            .filter(|from| Some(**from) != drawn_parent)
            .filter_map(|from| self.view.steps.get(*from as usize))
            .collect();
        let named: Vec<String> = others
            .iter()
            .take(MAX_MENTIONED)
            .map(|step| one_line(step.id.as_str(), 30))
            .collect();
        let more = match others.len().saturating_sub(MAX_MENTIONED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = write!(text, " (also after {}{more})", named.join(", "));
    }

    fn line(&mut self, line: &str) {
        self.out
            .push_str(&one_line(line, self.options.width.max(10)));
        self.out.push('\n');
        self.lines += 1;
    }
}

const STATUSES: [StepStatus; 6] = [
    StepStatus::Running,
    StepStatus::Waiting,
    StepStatus::Failed,
    StepStatus::Pending,
    StepStatus::Skipped,
    StepStatus::Completed,
];

/// Returns the drawing priority of a status; the lowest number is drawn first.
fn priority(status: StepStatus) -> usize {
    STATUSES
        .iter()
        .position(|one| *one == status)
        .unwrap_or_default()
}
