//! What every provider's model offers beside its own settings.

/// Gives a type that wraps a [`Remote`](super::Remote) the settings all providers share, and makes
/// it a model.
macro_rules! provider {
    ($model:ident) => {
        impl $model {
            /// Changes where the server is and how it is reached: address, headers, fields, time
            /// limits.
            #[must_use]
            pub fn with_endpoint(
                mut self,
                change: impl FnOnce($crate::Endpoint) -> $crate::Endpoint,
            ) -> Self {
                self.0.endpoint = change(self.0.endpoint);
                self
            }

            /// Says more of the model than its name.
            #[must_use]
            pub fn with_card(mut self, card: levity_core::ModelCard) -> Self {
                self.0.card = card;
                self
            }

            /// Sets whether a call that the model wrote as text is read as a call, where the server
            /// did not recognise it. On by default for servers of others' models and for Ollama,
            /// off for OpenAI, Anthropic and Gemini.
            ///
            /// Only text that is nothing but calls of offered tools is read so, and a notice in the
            /// stream says that it happened. `docs/models.md` lists the forms.
            #[must_use]
            pub fn with_text_calls(mut self, on: bool) -> Self {
                self.0.rescues = on;
                self
            }

            /// Asks for replies in one piece.
            #[must_use]
            pub fn without_streaming(mut self) -> Self {
                self.0.streams = false;
                self
            }
        }

        #[async_trait::async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl levity_core::Model for $model {
            fn card(&self) -> &levity_core::ModelCard {
                self.0.card()
            }

            fn cost_bound(&self, request: &levity_core::Request) -> levity_core::CostBound {
                self.0.cost_bound(request)
            }

            async fn stream(
                &self,
                request: levity_core::Request,
            ) -> Result<levity_core::Deltas, levity_core::ModelError> {
                self.0.stream(request).await
            }

            async fn complete(
                &self,
                request: levity_core::Request,
            ) -> Result<levity_core::Response, levity_core::ModelError> {
                self.0.complete(request).await
            }
        }
    };
}

pub(crate) use provider;
