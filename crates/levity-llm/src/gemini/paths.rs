//! Where models are: on AI Studio, and on Vertex AI.

use std::fmt::Write as _;

/// Where a server is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    AiStudio,
    Vertex { project: String, region: String },
}

impl Place {
    /// The address of the server.
    pub(super) fn base(&self) -> String {
        match self {
            Self::AiStudio => "https://generativelanguage.googleapis.com".to_owned(),
            Self::Vertex { region, .. } => {
                // It becomes a part of the host's name, and may not change what follows.
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

    /// The path for a model, which may be named with the folders above it.
    pub(super) fn path(&self, model: &str, stream: bool) -> String {
        let verb = if stream {
            "streamGenerateContent?alt=sse"
        } else {
            "generateContent"
        };
        format!("{}:{verb}", self.folder(model))
    }

    /// The path of a model, before what is asked of it.
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

fn ai_studio(steps: &[&str]) -> String {
    match steps {
        ["models" | "tunedModels", ..] if steps.len() > 1 => joined(steps),
        ["publishers", _, "models", model] | ["google", model] => {
            format!("models/{}", percent(model))
        }
        steps => format!("models/{}", joined(steps)),
    }
}

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

fn joined(steps: &[&str]) -> String {
    steps
        .iter()
        .map(|step| percent(step.trim()))
        .collect::<Vec<_>>()
        .join("/")
}

/// Text as it may stand in a path or a form.
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
    fn check(place: &Place, model: &str, expected: &str) {
        assert_eq!(
            place.path(model, false),
            format!("{expected}:generateContent")
        );
        assert_eq!(
            place.path(model, true),
            format!("{expected}:streamGenerateContent?alt=sse")
        );
    }

    fn vertex_in(region: &str) -> Place {
        Place::Vertex {
            project: "p 1".to_owned(),
            region: region.to_owned(),
        }
    }

    #[test]
    fn models_on_ai_studio_are_found_by_any_of_their_names() {
        let check = |model, expected| check(&Place::AiStudio, model, expected);
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
    fn models_on_vertex_are_found_by_any_of_their_names() {
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
    fn regions_have_servers() {
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
