//! The settings that the models of all providers share.
//!
//! A macro instead of a generic type keeps the public types of providers free of parameters: users
//! write `ChatModel`, and `Remote<Chat>` stays an implementation detail.

/// Implements the shared settings and `Model` for a type that wraps a [`Remote`](super::Remote).
macro_rules! provider {
    ($model:ident) => {
        impl $model {
            /// Changes the address of the server and its connection: headers, fields and time
            /// limits.
            ///
            /// The closure receives the current endpoint; return it changed, or return another one.
            /// The key of the provider is not part of the endpoint and stays.
            #[must_use]
            pub fn with_endpoint(
                mut self,
                change: impl FnOnce($crate::Endpoint) -> $crate::Endpoint,
            ) -> Self {
                self.0.endpoint = change(self.0.endpoint);
                self
            }

            /// Sets the model's card, which has more facts than its name.
            ///
            /// Set it for models that the built-in list does not know: the window decides when a
            /// conversation is compacted, the price makes money limits possible, and the
            /// capabilities decide what is sent. The id of the card is the name that the server
            /// receives.
            #[must_use]
            pub fn with_card(mut self, card: levity_core::ModelCard) -> Self {
                self.0.card = card;
                self
            }

            /// Enables or disables the parsing of calls that the model wrote as text and the server
            /// did not recognise. It is enabled by default for Ollama and for servers that host
            /// third-party models. It is disabled for OpenAI, Anthropic and Gemini.
            ///
            /// Only text that consists of calls to offered tools is parsed this way, and a notice
            /// in the stream reports it. `docs/models.md` lists the formats.
            #[must_use]
            pub fn with_text_calls(mut self, on: bool) -> Self {
                self.0.parses_text_calls = on;
                self
            }

            /// Requests replies without streaming.
            ///
            /// The reply arrives as one value. [`Model::stream`](levity_core::Model::stream) still
            /// works and yields all deltas at its end. Use it for servers that cannot stream. The
            /// time limit for the first byte then usually covers the whole generation.
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
