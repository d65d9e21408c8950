//! Situations of models, keys and limits.

use super::{HELLO, JSON, Row, Server};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "server down",
        "levity complete --model compatible:m@http://127.0.0.1:1/v1 Hi",
        1,
        "cannot reach http://127.0.0.1:1/v1 (model compatible:m): connection refused; is the \
         server running?",
    )
    .documented(),
    Row::new(
        "Ollama down",
        "levity complete --model ollama:m@http://127.0.0.1:1 Hi",
        1,
        "cannot reach http://127.0.0.1:1 (model ollama:m): connection refused; run `ollama \
         serve`",
    )
    .documented(),
    Row::new(
        "server down in a run",
        "levity run -q --model compatible:m@http://127.0.0.1:1/v1 Hi",
        1,
        "cannot reach http://127.0.0.1:1/v1 (model compatible:m): connection refused; is the \
         server running?",
    )
    .documented(),
    Row::new(
        "server down in a check",
        "levity models check compatible:m@http://127.0.0.1:1/v1",
        1,
        "cannot reach http://127.0.0.1:1/v1 (model compatible:m): connection refused; is the \
         server running?",
    )
    .notes(1)
    .documented(),
    Row::new(
        "unknown host",
        "levity complete --model compatible:m@http://nowhere.invalid/v1 Hi",
        1,
        "cannot reach http://nowhere.invalid/v1 (model compatible:m): the host name is \
         unknown; check the address",
    )
    .documented(),
    Row::new(
        "TLS to a plain server",
        "levity complete --model compatible:m@https://{server}/v1 Hi",
        1,
        "cannot reach https://{server}/v1 (model compatible:m): the server does not speak TLS \
         on this port; write `http://` to connect without TLS",
    )
    .server(Server::Reply("200 OK", JSON, "{}"))
    .documented(),
    Row::new(
        "status 401",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 401): no such key; \
         check the key",
    )
    .server(Server::Reply(
        "401 X",
        JSON,
        r#"{"error": {"message": "no such key"}}"#,
    ))
    .documented(),
    Row::new(
        "status 402",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 402): no credit; \
         check the account's balance",
    )
    .server(Server::Reply(
        "402 X",
        JSON,
        r#"{"error": {"message": "no credit"}}"#,
    )),
    Row::new(
        "status 403",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 403): the project \
         may not use this model; check the permissions of the key",
    )
    .server(Server::Reply(
        "403 X",
        JSON,
        r#"{"error": {"message": "the project may not use this model"}}"#,
    ))
    .documented(),
    Row::new(
        "status 404 with a web page",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 404): the server \
         sent a web page titled `Not Found`; check the model's name and the address",
    )
    .server(Server::Reply(
        "404 X",
        "text/html",
        "<html><title>Not Found</title></html>",
    ))
    .documented(),
    Row::new(
        "wrong model",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 404): the model `m` \
         does not exist; check the model's name and the address",
    )
    .server(Server::Reply(
        "404 X",
        JSON,
        r#"{"error": {"message": "the model `m` does not exist"}}"#,
    ))
    .documented(),
    Row::new(
        "request too large",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 413): the request is \
         too large; send a shorter request",
    )
    .server(Server::Reply(
        "413 X",
        JSON,
        r#"{"error": {"message": "the request is too large"}}"#,
    ))
    .documented(),
    Row::new(
        "status 429 after retries",
        "levity run -q --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 429): too many \
         requests; wait, or send fewer requests",
    )
    .server(Server::Reply(
        "429 X\r\nretry-after: 0",
        JSON,
        r#"{"error": {"message": "too many requests"}}"#,
    ))
    .documented(),
    Row::new(
        "status 500",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 500): out of memory; \
         try again later",
    )
    .server(Server::Reply(
        "500 X",
        JSON,
        r#"{"error": {"message": "out of memory"}}"#,
    ))
    .documented(),
    Row::new(
        "status 503",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 503): busy; try \
         again later",
    )
    .server(Server::Reply("503 X", "text/plain", "busy"))
    .documented(),
    Row::new(
        "next step of the provider",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 401): the key \
         expired; create a new one",
    )
    .server(Server::Reply(
        "401 X",
        JSON,
        r#"{"error": {"message": "the key expired; create a new one"}}"#,
    )),
    Row::new(
        "redirect",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 302): the server \
         redirects to `/login`, which is not followed; check the address",
    )
    .server(Server::Reply("302 X\r\nlocation: /login", "text/plain", ""))
    .documented(),
    Row::new(
        "image to a text model",
        "levity complete --model compatible:m@{url}/v1 --request image.json",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 400): the model does \
         not accept images; use another model",
    )
    .files(&[(
        "image.json",
        "{\"history\": [{\"role\": \"user\", \"parts\": [{\"type\": \"media\", \"mime\": \
             \"image/png\",\n\"source\": {\"bytes\": \"AAAA\"}}]}]}",
    )])
    .server(Server::Reply(
        "400 X",
        JSON,
        r#"{"error": {"message": "the model does not accept images; use another model"}}"#,
    )),
    Row::new(
        "truncated stream",
        "levity complete --stream --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m): the connection broke: \
         unexpected end of file: end of file before message length reached; try again",
    )
    .server(Server::Cut)
    .documented(),
    Row::new(
        "connection closed without reply",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m): the connection broke: \
         connection closed before message completed; try again",
    )
    .server(Server::Close)
    .documented(),
    Row::new(
        "reply is a web page",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 200): the server \
         sent a web page (text/html) instead of a model's reply; check the address",
    )
    .server(Server::Reply("200 OK", "text/html", "<html>Welcome</html>"))
    .documented(),
    Row::new(
        "reply is not JSON",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 200): the server \
         sent text, `Welcome` (application/json) instead of a model's reply; check the address",
    )
    .server(Server::Reply("200 OK", JSON, "Welcome"))
    .documented(),
    Row::new(
        "reply of another API",
        "levity complete --model compatible:m@{url}/v1 Hi",
        1,
        "request to http://{server}/v1 failed (model compatible:m, status 200): the reply has \
         no choices: the server sent JSON of another API with `answer` (application/json) \
         instead of a model's reply; check the address",
    )
    .server(Server::Reply("200 OK", JSON, r#"{"answer": "Yes."}"#))
    .documented(),
    Row::new(
        "missing key",
        "levity complete --model openai:m Hi",
        2,
        "`openai` needs a key; set `OPENAI_API_KEY`",
    )
    .documented(),
    Row::new(
        "empty key",
        "OPENAI_API_KEY= levity complete --model openai:m Hi",
        2,
        "`openai` needs a key; set `OPENAI_API_KEY`",
    ),
    Row::new(
        "missing project",
        "levity complete --model vertex:m Hi",
        2,
        "`vertex` needs a project; set `GOOGLE_CLOUD_PROJECT`",
    ),
    Row::new(
        "unknown provider",
        "levity complete --model opnai:m Hi",
        2,
        "there is no provider `opnai`; did you mean `openai`? the known providers are \
         `gemini`, `vertex`, `openai`, `openai-chat`, `anthropic`, `ollama`, `compatible`, \
         `alibaba`, `cerebras`, `deepseek`, `fireworks`, `groq`, `huggingface`, `mistral`, \
         `moonshot`, `nvidia`, `openrouter`, `perplexity`, `together`, `xai`, `zai`",
    )
    .documented(),
    Row::new(
        "model without provider",
        "levity complete --model gpt-4o Hi",
        2,
        "`gpt-4o` is not a model name; did you mean `openai:gpt-4o`? write `provider:model`, \
         such as `gemini:gemini-3.8-flash`",
    )
    .documented(),
    Row::new(
        "no model configured",
        "levity complete Hi",
        2,
        "the environment configures no model; set `GEMINI_API_KEY` for gemini, \
         `OPENAI_API_KEY` for openai, `ANTHROPIC_API_KEY` for anthropic, \
         `GOOGLE_CLOUD_PROJECT` for vertex, `OLLAMA_HOST` for ollama, `CEREBRAS_API_KEY` for \
         cerebras, `DEEPSEEK_API_KEY` for deepseek, `GROQ_API_KEY` for groq, `MISTRAL_API_KEY` \
         for mistral, `MOONSHOT_API_KEY` for moonshot, `OPENROUTER_API_KEY` for openrouter, \
         `PERPLEXITY_API_KEY` for perplexity, `TOGETHER_API_KEY` for together, `XAI_API_KEY` \
         for xai, `ZAI_API_KEY` for zai, or name one in `LEVITY_MODEL`",
    )
    .documented(),
    Row::new(
        "unknown model in LEVITY_MODEL",
        "LEVITY_MODEL=small levity complete Hi",
        2,
        "`small` is not a model name; write `provider:model`, such as `gemini:gemini-3.8-flash`",
    ),
    Row::new(
        "missing address",
        "levity complete --model compatible:m Hi",
        2,
        "`compatible` needs an address; set it after the name: \
         `compatible:m@http://127.0.0.1:8080/v1`",
    )
    .documented(),
    Row::new(
        "address without scheme",
        "levity complete --model ollama:m --base-url 127.0.0.1:1 Hi",
        2,
        "`127.0.0.1:1` is not a valid address; start it with `http://` or `https://`",
    )
    .documented(),
    Row::new(
        "two addresses",
        "levity complete --model a:b@http://h --base-url http://h Hi",
        2,
        "`a:b` already has an address; remove it or `--base-url`",
    ),
    Row::new(
        "key for an address of a file",
        "OPENAI_API_KEY=k levity complete --model openai:m Hi",
        2,
        "`OPENAI_API_KEY`, set in the environment, is not sent to `http://127.0.0.1:1/v1`, \
         since that address is from `OPENAI_BASE_URL` in `.env`; set `OPENAI_BASE_URL` in the \
         environment yourself if you trust that address, or put the key into `.env`",
    )
    .files(&[(".env", "OPENAI_BASE_URL=http://127.0.0.1:1/v1")])
    .documented(),
    Row::new(
        "unknown price",
        "levity run -q hi --model compatible:m@http://127.0.0.1:1/v1 --limit-cost 1",
        2,
        "the price of the model `m` is unknown, so `--limit-cost` cannot be enforced; set a \
         price with `--assume-price INPUT:OUTPUT`, in dollars per million tokens",
    )
    .documented(),
    Row::new(
        "budget too small",
        "levity run -q hi --model openai:gpt-4o@http://127.0.0.1:1/v1 --limit-cost 0.0000001",
        1,
        "the limit on money was reached before there was an answer; raise it, or ask for less",
    )
    .documented(),
    Row::new(
        "limit on tokens",
        "levity run -q hi --script hello.json --limit-tokens 1",
        1,
        "the limit on tokens was reached before there was an answer; raise it, or ask for less",
    )
    .files(&[HELLO]),
    Row::new(
        "limit on model calls",
        "levity run -q hi --limit-calls 0",
        1,
        "the limit on model calls was reached before there was an answer; raise it, or ask for \
         less",
    )
    .documented(),
    Row::new(
        "limit on time",
        "levity run -q hi --script hangs.json --limit-time 0.2",
        1,
        "the limit on time was reached before there was an answer; raise it, or ask for less",
    )
    .files(&[("hangs.json", r#"[{"hang": true}]"#)]),
    Row::new(
        "script is too short",
        "levity run -q hi --script none.json",
        1,
        "the model gave no reply: call 1 of the model has no step: the script has only 0 \
         steps; add one",
    )
    .files(&[("none.json", "[]")])
    .documented(),
    Row::new(
        "guard blocks the input",
        "levity run -q hi --script hello.json --guard input:1",
        1,
        "`size` blocked the input: it has 2 bytes, but the limit is 1; change the text or the \
         guard",
    )
    .files(&[HELLO])
    .documented(),
];
