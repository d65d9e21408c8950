#!/usr/bin/env bash
# Runs the comparison of PLAN.md: every subject on the same cases, scored by BFCL's own checker.
#
#   START='llama-server -m model.gguf --jinja -c 4096 -np 1 -t 1 --port 8080' PORT=8080 \
#     DATA=bfcl/bfcl_eval/data OUT=results ./run.sh [SUBJECT..]
#
# START   starts the server in the foreground; without it, a server must already listen at PORT
# DATA    the folder `bfcl_eval/data` of the package `bfcl-eval`
# LIMIT   cases of `simple_python` and of `multiple`, 40 by default; half as many of `irrelevance`
# PYTHON  a Python with the packages of requirements.txt; LEVITY and RIG: the two programs
# To continue a stopped run, repeat the command.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${DATA:?}" "${OUT:?}" "${PORT:=8080}" "${LIMIT:=40}" "${PYTHON:=python3}" "${LEVITY:=levity}"
: "${RIG:=$here/rig/target/release/head-to-head-rig}"
export BASE_URL=http://127.0.0.1:$PORT/v1 MODEL=${MODEL:-qwen}
export LLAMACPP_API_KEY=none LLAMACPP_API_BASE_URL=http://127.0.0.1:$PORT/v1
[ $# -gt 0 ] || set -- levity plain pydantic_ai openai_agents langgraph smolagents rig levity-again
mkdir -p "$OUT"
{
  date -u +%FT%TZ
  git -C "$here" rev-parse HEAD
  "$LEVITY" --version
  "$PYTHON" -m pip freeze
  grep '^rig' "$here/rig/Cargo.toml"
  grep -m1 'model name' /proc/cpuinfo || true
} >"$OUT/versions.txt"

server=
stop() {
  [ -z "$server" ] || {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
  }
}
trap stop EXIT
start() {
  [ -n "${START:-}" ] || return 0
  # shellcheck disable=SC2086
  $START >>"$OUT/server.txt" 2>&1 &
  server=$!
  until curl -fs "http://127.0.0.1:$PORT/health" >/dev/null; do
    kill -0 "$server" || { echo "the server stopped; see $OUT/server.txt" >&2; exit 1; }
    sleep 1
  done
}
# Prints the CPU time of the server in seconds.
cpu() {
  [ -z "$server" ] ||
    awk -v ticks="$(getconf CLK_TCK)" '{print ($14 + $15) / ticks}' "/proc/$server/stat"
}

evaluate() { # SUBJECT CATEGORIES LIMIT ARGS..
  local subject=$1 categories=$2 limit=$3
  shift 3
  "$LEVITY" eval run --suite bfcl --data "$DATA" --judge bfcl --python "$PYTHON" \
    --out "$OUT/$subject" --name "$subject" \
    --categories "$categories" --odd --offset 3 --limit "$limit" "$@"
}

for subject in "$@"; do
  echo "== $subject"
  start
  case $subject in
    levity | levity-again)
      how=(--model "compatible:$MODEL@$BASE_URL" --temperature 0 --max-tokens 512) ;;
    rig) how=(-- "$RIG") ;;
    *) how=(-- "$PYTHON" "$here/subjects/use_$subject.py") ;;
  esac
  evaluate "$subject" simple_python,multiple "$LIMIT" "${how[@]}" >/dev/null
  evaluate "$subject" irrelevance $((LIMIT / 2)) "${how[@]}" | tee "$OUT/$subject/report.txt"
  echo "server CPU seconds: $(cpu)" | tee -a "$OUT/$subject/report.txt"
  stop
done
for subject in "$@"; do
  case $subject in levity | levity-again) continue ;; esac
  [ -d "$OUT/levity" ] || continue
  for categories in simple_python,multiple irrelevance; do
    "$LEVITY" eval compare "$OUT/levity" "$OUT/$subject" --categories "$categories"
  done | tee "$OUT/$subject/compared.txt"
done
