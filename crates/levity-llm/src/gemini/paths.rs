//! Addresses of models on AI Studio and Vertex AI.
//!
//! Names of models come from configuration and may contain folders. Segments that could leave the
//! intended path (`..`, empty ones) are removed, and everything else is percent-encoded.

use std::fmt::Write as _;

/// The service that offers a model.
#[derive(Clone, Debug)]
pub(super) enum Service {
    AiStudio,
    Vertex { project: String, region: String },
}

impl Service {
    /// Returns the address of the server.
    ///
    /// `europe-west1` is `https://europe-west1-aiplatform.googleapis.com`; `global`, `us` and `eu`
    /// have hosts of their own.
    pub(super) fn base(&self) -> String {
        match self {
            Self::AiStudio => "https://generativelanguage.googleapis.com".to_owned(),
            Self::Vertex { region, .. } => {
                // The region becomes part of the host name and must not change the rest of the
                // address.
                let region: String = region
                    .chars()
                    .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
                    .collect();
                match &*region {
                    "global" => "https://aiplatform.googleapis.com".to_owned(),
                    "us" | "eu" => format!("https://aiplatform.{region}.rep.googleapis.com"),
                    region => format!("https://{region}-aiplatform.googleapis.com"),
                }
            }
        }
    }

    /// Returns the path for a model, whose name may include its parent folders.
    ///
    /// AI Studio: `/v1beta/models/gemini-2.5-flash:generateContent`.
    pub(super) fn path(&self, model: &str, stream: bool) -> String {
        let verb = if stream {
            "streamGenerateContent?alt=sse"
        } else {
            "generateContent"
        };
        format!("{}:{verb}", self.folder(model))
    }

    /// Returns the path of a model, without the method.
    ///
    /// A name that starts with `projects/` is complete already.
    pub(super) fn folder(&self, model: &str) -> String {
        let steps: Vec<&str> = model
            .split('/')
            .filter(|step| !matches!(step.trim(), "" | "." | ".."))
            .collect();
        match self {
            Self::AiStudio => format!("/v1beta/{}", ai_studio(&steps)),
            Self::Vertex { project, region } => {
                let location = format!(
                    "projects/{}/locations/{}",
                    percent(project),
                    percent(region)
                );
                match &*steps {
                    ["projects", ..] => format!("/v1/{}", joined(&steps)),
                    steps => format!("/v1/{location}/{}", vertex(steps)),
                }
            }
        }
    }
}

/// Returns the path of a model on AI Studio. Names in the form of Vertex AI are accepted too.
fn ai_studio(steps: &[&str]) -> String {
    match steps {
        ["models" | "tunedModels", ..] if steps.len() > 1 => joined(steps),
        ["publishers", _, "models", model] | ["google", model] => {
            format!("models/{}", percent(model))
        }
        steps => format!("models/{}", joined(steps)),
    }
}

/// Returns the path of a model on Vertex AI. The publisher is Google unless the name contains one,
/// such as `anthropic/claude-sonnet-4-5`.
fn vertex(steps: &[&str]) -> String {
    match steps {
        ["publishers" | "endpoints", _, ..] => joined(steps),
        ["models", model] => format!("publishers/google/models/{}", percent(model)),
        [publisher, model] => format!(
            "publishers/{}/models/{}",
            percent(publisher),
            percent(model)
        ),
        steps => format!("publishers/google/models/{}", joined(steps)),
    }
}

/// Joins the steps of a path, each percent-encoded.
fn joined(steps: &[&str]) -> String {
    steps
        .iter()
        .map(|step| percent(step.trim()))
        .collect::<Vec<_>>()
        .join("/")
}

/// Returns text in the escaped form for a path or a form.
///
/// Letters, digits and `-._~@` stay; all other bytes become `%XX`, slashes included.
pub(super) fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(service: &Service, model: &str, expected: &str) {
        assert_eq!(
            service.path(model, false),
            format!("{expected}:generateContent")
        );
        assert_eq!(
            service.path(model, true),
            format!("{expected}:streamGenerateContent?alt=sse")
        );
    }

    fn vertex_in(region: &str) -> Service {
        Service::Vertex {
            project: "p 1".to_owned(),
            region: region.to_owned(),
        }
    }

    #[test]
    fn ai_studio_path_accepts_all_forms_of_names() {
        let check = |model, expected| check(&Service::AiStudio, model, expected);
        check("gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash");
        check("models/gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash");
        check("tunedModels/mine", "/v1beta/tunedModels/mine");
        check("publishers/google/models/x", "/v1beta/models/x");
        check("google/x", "/v1beta/models/x");
        check("/models/x/", "/v1beta/models/x");
        check("a?b#c:d ü", "/v1beta/models/a%3Fb%23c%3Ad%20%C3%BC");
        check("models/../../x", "/v1beta/models/x");
    }

    #[test]
    fn vertex_path_accepts_all_forms_of_names() {
        let check = |model, expected: &str| check(&vertex_in("us-central1"), model, expected);
        let here = "/v1/projects/p%201/locations/us-central1";
        check(
            "gemini-2.5-pro",
            &format!("{here}/publishers/google/models/gemini-2.5-pro"),
        );
        check(
            "models/gemini-2.5-pro",
            &format!("{here}/publishers/google/models/gemini-2.5-pro"),
        );
        check(
            "publishers/meta/models/x@001",
            &format!("{here}/publishers/meta/models/x@001"),
        );
        check("meta/x", &format!("{here}/publishers/meta/models/x"));
        check("endpoints/123", &format!("{here}/endpoints/123"));
        check(
            "projects/q/locations/l/endpoints/7",
            "/v1/projects/q/locations/l/endpoints/7",
        );
    }

    #[test]
    fn region_determines_server() {
        assert_eq!(
            vertex_in("global").base(),
            "https://aiplatform.googleapis.com"
        );
        assert_eq!(
            vertex_in("eu").base(),
            "https://aiplatform.eu.rep.googleapis.com"
        );
        assert_eq!(
            vertex_in("us-east5").base(),
            "https://us-east5-aiplatform.googleapis.com"
        );
        assert_eq!(
            vertex_in("evil.com/#").base(),
            "https://evilcom-aiplatform.googleapis.com"
        );
    }
}
