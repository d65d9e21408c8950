//! Conversion of type hints to schemas.
//!
//! The supported hints are the basic types, `list`, `dict`, `tuple`, `Optional`, `Union`,
//! `Literal`, `Annotated`, `Any`, and `|`, quoted or not. The module of a name is ignored:
//! `typing.List` and `List` are the same. An unknown hint never fails a file; it only widens the
//! schema, and the author gets a warning.

use ruff_python_ast::{Expr, Number, Operator, UnaryOp};
use serde_json::{Map, Value, json};

use super::name_of;

/// The maximum nesting of hints.
const MAX_DEPTH: usize = 16;

/// Returns the schema of a hint; an unknown hint accepts any value and adds a note.
pub(super) fn schema(hint: &Expr, notes: &mut Vec<String>) -> Value {
    of(hint, MAX_DEPTH, notes)
}

/// Returns the schema of a hint, if it is fully understood.
pub(super) fn exact(hint: &Expr) -> Option<Value> {
    let mut notes = Vec::new();
    let schema = schema(hint, &mut notes);
    (notes.is_empty() && schema != json!({})).then_some(schema)
}

fn of(hint: &Expr, depth: usize, notes: &mut Vec<String>) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return unknown("a hint nested too deeply", notes);
    };
    match hint {
        Expr::NoneLiteral(_) => json!({"type": "null"}),
        Expr::Name(_) | Expr::Attribute(_) => named(name_of(hint).unwrap_or_default(), notes),
        Expr::BinOp(either) if either.op == Operator::BitOr => {
            any_of([&*either.left, &*either.right].into_iter(), depth, notes)
        }
        Expr::Subscript(subscript) => {
            let name = name_of(&subscript.value).unwrap_or_default();
            generic(name, &subscript.slice, depth, notes)
        }
        // A quoted hint is a hint as well.
        Expr::StringLiteral(text) => {
            match ruff_python_parser::parse_expression(text.value.to_str()) {
                Ok(hint) => of(hint.expr(), depth, notes),
                Err(_) => unknown(text.value.to_str(), notes),
            }
        }
        _ => unknown("a hint of this form", notes),
    }
}

fn unknown(what: &str, notes: &mut Vec<String>) -> Value {
    notes.push(format!(
        "the hint `{what}` is not supported, so any value is accepted"
    ));
    json!({})
}

fn named(name: &str, notes: &mut Vec<String>) -> Value {
    match name {
        "str" => json!({"type": "string"}),
        "int" => json!({"type": "integer"}),
        "float" => json!({"type": "number"}),
        "bool" => json!({"type": "boolean"}),
        "None" => json!({"type": "null"}),
        "Any" | "object" => json!({}),
        "list" | "List" | "tuple" | "Tuple" | "Sequence" | "Iterable" => json!({"type": "array"}),
        "dict" | "Dict" | "Mapping" => json!({"type": "object"}),
        other => unknown(other, notes),
    }
}

/// Converts a hint with parameters, such as `list[int]` or `tuple[int, ...]`.
fn generic(name: &str, slice: &Expr, depth: usize, notes: &mut Vec<String>) -> Value {
    let parts: Vec<&Expr> = match slice {
        Expr::Tuple(tuple) => tuple.elts.iter().collect(),
        one => vec![one],
    };
    match (name, &parts[..]) {
        ("Optional", [one]) => {
            let one = of(one, depth, notes);
            join(vec![one, json!({"type": "null"})])
        }
        ("Union", parts) => any_of(parts.iter().copied(), depth, notes),
        ("Literal", parts) => match parts
            .iter()
            .map(|part| literal(part))
            .collect::<Option<Vec<Value>>>()
        {
            Some(values) => json!({"enum": values}),
            None => unknown("Literal", notes),
        },
        ("Annotated", [hint, ..]) => of(hint, depth, notes),
        ("list" | "List" | "Sequence" | "Iterable", [one]) => {
            json!({"type": "array", "items": of(one, depth, notes)})
        }
        ("tuple" | "Tuple", [one, Expr::EllipsisLiteral(_)]) => {
            json!({"type": "array", "items": of(one, depth, notes)})
        }
        ("tuple" | "Tuple", parts) => {
            let items: Vec<Value> = parts.iter().map(|part| of(part, depth, notes)).collect();
            json!({
                "type": "array",
                "minItems": items.len(),
                "maxItems": items.len(),
                "prefixItems": items,
            })
        }
        ("dict" | "Dict" | "Mapping", [key, value]) => {
            if name_of(key) != Some("str") {
                notes.push(
                    "keys in JSON are strings, so other dict keys arrive as strings".to_owned(),
                );
            }
            json!({"type": "object", "additionalProperties": of(value, depth, notes)})
        }
        _ => unknown(name, notes),
    }
}

/// Converts alternatives, such as both sides of `int | None`.
fn any_of<'a>(
    parts: impl Iterator<Item = &'a Expr>,
    depth: usize,
    notes: &mut Vec<String>,
) -> Value {
    join(parts.map(|part| of(part, depth, notes)).collect())
}

/// Merges several schemas into one.
fn join(schemas: Vec<Value>) -> Value {
    if schemas.contains(&json!({})) {
        return json!({});
    }
    // Schemas that only name a type become one list of types.
    let type_of = |schema: &Value| match schema.as_object()?.iter().next()? {
        (key, Value::String(name)) if key == "type" && schema.as_object()?.len() == 1 => {
            Some(vec![json!(name)])
        }
        (key, Value::Array(names)) if key == "type" && schema.as_object()?.len() == 1 => {
            Some(names.clone())
        }
        _ => None,
    };
    if let Some(types) = schemas.iter().map(type_of).collect::<Option<Vec<_>>>() {
        let mut all: Vec<Value> = Vec::new();
        types.into_iter().flatten().for_each(|name| {
            if !all.contains(&name) {
                all.push(name);
            }
        });
        return json!({"type": all});
    }
    let flat = schemas
        .into_iter()
        .flat_map(|schema| match schema.get("anyOf") {
            Some(Value::Array(inner)) => inner.clone(),
            _ => vec![schema],
        });
    json!({"anyOf": flat.collect::<Vec<_>>()})
}

/// Converts a literal into JSON.
pub(super) fn literal(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::NoneLiteral(_) => Some(Value::Null),
        Expr::BooleanLiteral(value) => Some(json!(value.value)),
        Expr::StringLiteral(text) => Some(json!(text.value.to_str())),
        Expr::NumberLiteral(number) => match &number.value {
            Number::Int(int) => int.as_i64().map(|int| json!(int)),
            Number::Float(float) => Some(json!(float)),
            Number::Complex { .. } => None,
        },
        Expr::UnaryOp(unary) if unary.op == UnaryOp::USub => match literal(&unary.operand)? {
            Value::Number(number) => match number.as_i64() {
                Some(int) => Some(json!(int.checked_neg()?)),
                None => Some(json!(-number.as_f64()?)),
            },
            _ => None,
        },
        Expr::List(list) => list.elts.iter().map(literal).collect(),
        Expr::Tuple(tuple) => tuple.elts.iter().map(literal).collect(),
        Expr::Dict(dict) => {
            let pair = |item: &ruff_python_ast::DictItem| match literal(item.key.as_ref()?)? {
                Value::String(key) => Some((key, literal(&item.value)?)),
                _ => None,
            };
            dict.items
                .iter()
                .map(pair)
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that each case is one short line"
    )]
    fn check(hint: &str, expected: Value) {
        let parsed = ruff_python_parser::parse_expression(hint).unwrap();
        let mut notes = Vec::new();
        assert_eq!(schema(parsed.expr(), &mut notes), expected, "{hint}");
        assert!(notes.is_empty(), "{hint}: {notes:?}");
    }

    #[test]
    fn hints_are_converted_to_schemas() {
        check("str", json!({"type": "string"}));
        check("float", json!({"type": "number"}));
        check("None", json!({"type": "null"}));
        check("Any", json!({}));
        check("list", json!({"type": "array"}));
        check(
            "list[int]",
            json!({"type": "array", "items": {"type": "integer"}}),
        );
        check(
            "typing.List[bool]",
            json!({"type": "array", "items": {"type": "boolean"}}),
        );
        check(
            "dict[str, list[str]]",
            json!({
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            }),
        );
        check(
            "tuple[int, str]",
            json!({
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
            }),
        );
        check(
            "tuple[int, ...]",
            json!({"type": "array", "items": {"type": "integer"}}),
        );
        check(
            "int | str | None",
            json!({"type": ["integer", "string", "null"]}),
        );
        check("Optional[int]", json!({"type": ["integer", "null"]}));
        check(
            "Union[int, list[int], None]",
            json!({
                "anyOf": [
                    {"type": "integer"},
                    {"type": "array", "items": {"type": "integer"}},
                    {"type": "null"},
                ],
            }),
        );
        check(
            "Literal['a', 2, True, None]",
            json!({"enum": ["a", 2, true, null]}),
        );
        check(
            "'list[int]'",
            json!({"type": "array", "items": {"type": "integer"}}),
        );
        check("Annotated[int, 'a number']", json!({"type": "integer"}));
        check("int | Any", json!({}));
    }

    #[test]
    fn unknown_hint_accepts_any_value_with_note() {
        for hint in [
            "Frame",
            "set[int]",
            "list[Frame]",
            "f(x)",
            "'a b'",
            "Literal[x]",
        ] {
            let parsed = ruff_python_parser::parse_expression(hint).unwrap();
            let mut notes = Vec::new();
            schema(parsed.expr(), &mut notes);
            assert_eq!(notes.len(), 1, "{hint}: {notes:?}");
            assert_eq!(exact(parsed.expr()), None);
        }
    }

    #[test]
    fn literals_are_converted_to_json() {
        let literal =
            |text: &str| literal(ruff_python_parser::parse_expression(text).unwrap().expr());
        assert_eq!(literal("-3"), Some(json!(-3)));
        assert_eq!(literal("[1, (2.5, None)]"), Some(json!([1, [2.5, null]])));
        assert_eq!(
            literal("{'a': {'b': False}}"),
            Some(json!({"a": {"b": false}}))
        );
        assert_eq!(literal("f()"), None);
        assert_eq!(literal("{1: 2}"), None);
    }
}
