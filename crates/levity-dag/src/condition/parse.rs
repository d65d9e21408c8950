//! Parses tokens by recursive descent, one function for each level of the grammar.
//!
//! `depth` counts down at every nested `not`, parenthesis and list, so that the recursion is
//! limited to 32 levels whatever the text contains.

use std::sync::Arc;

use serde_json::Value;

use super::lex::{self, Fault, Token};
use super::{Compare, CompiledCondition, Condition, Operand, Part, Test};

pub(super) fn parse(text: &str) -> Result<CompiledCondition, Fault> {
    if text.len() > Condition::MAX_LEN {
        let limit = Condition::MAX_LEN;
        return Err((
            text.len(),
            format!("the condition is longer than {limit} bytes; it ends"),
        ));
    }
    let tokens = lex::tokens(text)?;
    let mut parser = Parser {
        tokens,
        next: 0,
        end: text.len(),
        variables: Vec::new(),
    };
    let test = parser.or(Condition::MAX_DEPTH)?;
    match parser.tokens.get(parser.next) {
        None => Ok(CompiledCondition {
            test,
            variables: parser.variables,
        }),
        Some((at, Token::Compare(_))) => Err((
            *at,
            "a comparison has two values; put `and` between comparisons".into(),
        )),
        Some((at, _)) => Err((*at, "`and` or `or` is missing".into())),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
    variables: Vec<Arc<str>>,
}

impl Parser {
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// Takes the next token if it is this one.
    fn take(&mut self, token: &Token) -> bool {
        let matches = self.peek() == Some(token);
        self.next += usize::from(matches);
        matches
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, Fault> {
        Err((self.at(), what.into()))
    }

    fn need(&mut self, mark: char) -> Result<(), Fault> {
        if self.take(&Token::Mark(mark)) {
            Ok(())
        } else {
            self.fail(format!("`{mark}` is missing"))
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, Fault> {
        match depth.checked_sub(1) {
            Some(depth) => Ok(depth),
            None => self.fail("the condition is nested too deeply"),
        }
    }

    fn or(&mut self, depth: usize) -> Result<Test, Fault> {
        let mut tests = vec![self.and(depth)?];
        while self.take(&Token::Or) {
            tests.push(self.and(depth)?);
        }
        Ok(one_or(tests, Test::Any))
    }

    fn and(&mut self, depth: usize) -> Result<Test, Fault> {
        let mut tests = vec![self.not(depth)?];
        while self.take(&Token::And) {
            tests.push(self.not(depth)?);
        }
        Ok(one_or(tests, Test::All))
    }

    fn not(&mut self, depth: usize) -> Result<Test, Fault> {
        let depth = self.deeper(depth)?;
        if self.take(&Token::Not) {
            return Ok(Test::Not(Box::new(self.not(depth)?)));
        }
        if self.take(&Token::Mark('(')) {
            let test = self.or(depth)?;
            self.need(')')?;
            return Ok(test);
        }
        let left = self.operand(depth)?;
        Ok(match self.compare()? {
            Some(operator) => Test::Compare(left, operator, self.operand(depth)?),
            None => Test::Truthy(left),
        })
    }

    fn compare(&mut self) -> Result<Option<Compare>, Fault> {
        if self.take(&Token::Not) {
            return match self.take(&Token::Compare(Compare::In)) {
                true => Ok(Some(Compare::NotIn)),
                false => self.fail("`in` is missing"),
            };
        }
        let Some(Token::Compare(operator)) = self.peek() else {
            return Ok(None);
        };
        let operator = *operator;
        self.next += 1;
        Ok(Some(operator))
    }

    fn operand(&mut self, depth: usize) -> Result<Operand, Fault> {
        let Some(Token::Name(name)) = self.peek() else {
            return self.literal(depth).map(Operand::Literal);
        };
        let name: Arc<str> = name.as_str().into();
        self.next += 1;
        let parts = self.parts()?;
        if !self.variables.contains(&name) {
            self.variables.push(name.clone());
        }
        Ok(Operand::Path(name, parts))
    }

    fn parts(&mut self) -> Result<Vec<Part>, Fault> {
        let mut parts = Vec::new();
        loop {
            if self.take(&Token::Mark('.')) {
                parts.push(self.key()?);
            } else if self.take(&Token::Mark('[')) {
                parts.push(self.element()?);
                self.need(']')?;
            } else {
                return Ok(parts);
            }
        }
    }

    /// Reads the name after a dot; keywords are names there.
    fn key(&mut self) -> Result<Part, Fault> {
        let name = match self.peek() {
            Some(Token::Name(name)) => name.as_str(),
            Some(Token::And) => "and",
            Some(Token::Or) => "or",
            Some(Token::Not) => "not",
            Some(Token::Compare(Compare::In)) => "in",
            Some(Token::Compare(Compare::Contains)) => "contains",
            Some(Token::True) => "true",
            Some(Token::False) => "false",
            Some(Token::Null) => "null",
            _ => return self.fail("a name is missing"),
        };
        let key = Part::Key(name.to_owned());
        self.next += 1;
        Ok(key)
    }

    fn element(&mut self) -> Result<Part, Fault> {
        let part = match self.peek() {
            Some(Token::Text(key)) => Some(Part::Key(key.clone())),
            Some(Token::Number(at)) => at.as_i64().map(Part::At),
            _ => None,
        };
        match part {
            Some(part) => {
                self.next += 1;
                Ok(part)
            }
            None => self.fail("an integer or a text in quotes is missing"),
        }
    }

    fn literal(&mut self, depth: usize) -> Result<Value, Fault> {
        let value = match self.peek() {
            Some(Token::Mark('[')) => {
                self.next += 1;
                return self.list(depth);
            }
            Some(Token::Text(text)) => Value::String(text.clone()),
            Some(Token::Number(number)) => Value::Number(number.clone()),
            Some(Token::True) => Value::Bool(true),
            Some(Token::False) => Value::Bool(false),
            Some(Token::Null) => Value::Null,
            _ => return self.fail("a value is missing"),
        };
        self.next += 1;
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let depth = self.deeper(depth)?;
        let mut list = Vec::new();
        while !self.take(&Token::Mark(']')) {
            if let Some(Token::Name(name)) = self.peek() {
                return self.fail(format!(
                    "a list cannot contain paths; put `{name}` in quotes if it is a text"
                ));
            }
            list.push(self.literal(depth)?);
            if !self.take(&Token::Mark(',')) {
                self.need(']')?;
                break;
            }
        }
        Ok(Value::Array(list))
    }
}

fn one_or(mut tests: Vec<Test>, many: impl Fn(Vec<Test>) -> Test) -> Test {
    match tests.pop() {
        Some(test) if tests.is_empty() => test,
        last => {
            tests.extend(last);
            many(tests)
        }
    }
}
