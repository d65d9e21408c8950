//! A multi-turn package with the layout of `bfcl-eval`, with tickets and two made-up cases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

const CONFIG: &str = r#"
CLASS_FILE_PATH_MAPPING = {"TicketAPI": "bfcl_eval.tickets", "MathAPI": "bfcl_eval.sums"}
STATELESS_CLASSES = ["MathAPI"]
"#;

const PROMPTS: &str = r#"
OTHER = "no"
DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = (
    "There is one more function."
)
"#;

const TICKETS: &str = r#"
import time

class TicketAPI:
    def _load_scenario(self, config, long_context=False):
        self.titles = list(config.get("titles", [])) + (["long"] * 3 if long_context else [])
    def open_ticket(self, title):
        print("a tool may print")
        if not title:
            raise ValueError("a ticket needs a title")
        self.titles.append(title)
        return {"number": len(self.titles)}
    def list_tickets(self):
        return self.titles
    def clear_tickets(self):
        self.titles = []
        return "gone"
    def wait(self):
        time.sleep(60)
    def _secret(self):
        return "secret"
    def unlisted(self):
        return "unlisted"
"#;

const SUMS: &str = "
class MathAPI:
    def add(self, a, b):
        return a + b
";

const UTILS: &str = "
import importlib
from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES

def execute(calls, entry, model):
    instances, keys = {}, {}
    for name in entry['involved_classes']:
        keys[name] = key = f'{model}_{entry[\"id\"]}_{name}_instance'
        if key not in globals():
            instance = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                instance._load_scenario(dict(entry['initial_config'].get(name, {})))
            globals()[key] = instance
        instances[name] = globals()[key]
    for call in calls:
        owners = [keys[name] for name, i in instances.items() if hasattr(i, call.split('(')[0])]
        try:
            eval(f'{owners[0]}.{call}')
        except Exception:
            pass
    return instances
";

const CHECKER: &str = "
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute

def multi_turn_checker(turns, answer, entry, category, model):
    for index, right in enumerate(answer):
        ours = execute([call for step in turns[index] for call in step], entry, model)
        theirs = execute(right, entry, model + '_ground_truth')
        for name in ours:
            if vars(ours[name]) != vars(theirs[name]):
                differences = {'ours': vars(ours[name]), 'theirs': vars(theirs[name])}
                return {'valid': False, 'error_type': 'state', 'error_message': f'turn {index}', \
                'details': {'differences': differences}}
    return {'valid': True}
";

/// Writes the package and returns its folder `bfcl_eval/data`.
pub(crate) fn write(folder: &Path) -> PathBuf {
    let package = folder.join("bfcl_eval");
    let data = package.join("data");
    let file = |path: &str, text: &str| {
        let path = package.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("__init__.py", "");
    file("constants/executable_backend_config.py", CONFIG);
    file("constants/default_prompts.py", PROMPTS);
    file("tickets.py", TICKETS);
    file("sums.py", SUMS);
    file("eval_checker/multi_turn_eval/multi_turn_utils.py", UTILS);
    file(
        "eval_checker/multi_turn_eval/multi_turn_checker.py",
        CHECKER,
    );
    let function = |name: &str, parameters: &[(&str, &str)]| {
        let properties: serde_json::Map<_, _> = parameters
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind})))
            .collect();
        let required: Vec<_> = parameters.iter().map(|(name, _)| *name).collect();
        let parameters = json!({"type": "dict", "properties": properties, "required": required});
        format!(
            "{}\n",
            json!({"name": name, "description": "A function.", "parameters": parameters})
        )
    };
    let tickets = function("open_ticket", &[("title", "string")])
        + &function("list_tickets", &[])
        + &function("clear_tickets", &[])
        + &function("wait", &[]);
    file("data/multi_turn_func_doc/ticket_api.json", &tickets);
    file(
        "data/multi_turn_func_doc/math_api.json",
        &function("add", &[("a", "float"), ("b", "float")]),
    );
    let user = |text: &str| json!([{"role": "user", "content": text}]);
    let row = json!({
        "id": "multi_turn_miss_func_0", "involved_classes": ["TicketAPI"],
        "question": [user("Open a ticket about \
            rain."), user("Remove all \
            tickets."), [], user("Thanks.")],
        "initial_config": {"TicketAPI": {"titles": ["snow"]}},
        "missed_function": {"2": ["clear_tickets"]},
    });
    file("data/BFCL_v4_multi_turn_miss_func.json", &row.to_string());
    let answer = json!({
        "id": "multi_turn_miss_func_0",
        "ground_truth": [["open_ticket(title='rain')"], [], ["clear_tickets()"], []],
    });
    file(
        "data/possible_answer/BFCL_v4_multi_turn_miss_func.json",
        &answer.to_string(),
    );
    let row = json!({
        "id": "multi_turn_base_0", "involved_classes": ["MathAPI", "TicketAPI"],
        "question": [user("Open a ticket about f(x).")], "initial_config": {},
    });
    file("data/BFCL_v4_multi_turn_base.json", &row.to_string());
    let answer = json!({"id": "multi_turn_base_0", "ground_truth": [["open_ticket('f(x)')"]]});
    file(
        "data/possible_answer/BFCL_v4_multi_turn_base.json",
        &answer.to_string(),
    );
    data
}

/// Returns `true` if Python is available; otherwise prints that the test is skipped.
pub(crate) fn has_python() -> bool {
    let run = Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.is_ok_and(|status| status.success())
}
