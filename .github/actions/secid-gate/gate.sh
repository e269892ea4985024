#!/usr/bin/env bash
# Runs `secid gate` with what the action's inputs say. Reads GATE_* variables; takes no arguments.
set -euo pipefail

arguments=(gate --annotations github --against "$GATE_AGAINST")
[[ -z "${GATE_POLICY:-}" ]] || arguments+=(--policy "$GATE_POLICY")
[[ -z "${GATE_PAIRED:-}" ]] || arguments+=(--paired "$GATE_PAIRED")
[[ -z "${GATE_ENCODER:-}" ]] || arguments+=(--encoder "$GATE_ENCODER")
[[ -z "${GATE_JUNIT:-}" ]] || arguments+=(--out "$GATE_JUNIT")
[[ -z "${GATE_JSON:-}" ]] || arguments+=(--out "$GATE_JSON")

[[ "${GATE_EXIT_ZERO:-false}" != true ]] || arguments+=(--exit-zero)
# The outcome is read from the verdict: in a trial period the exit code does not tell it.
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
arguments+=(--out "$folder/verdict.json")

# After -- nothing is an option, whatever a file is called.
arguments+=(--)
while IFS= read -r source; do
  source="${source%$'\r'}"
  [[ -z "$source" ]] || arguments+=("$source")
done <<<"$GATE_SOURCES"

code=0
secid "${arguments[@]}" || code=$?

if [[ -n "${GITHUB_OUTPUT:-}" ]]; then
  outcome=error
  if [[ -f "$folder/verdict.json" ]]; then
    outcome="$(sed -n 's/^  "outcome": "\(.*\)",$/\1/p' "$folder/verdict.json")"
    [[ "$outcome" != not_evaluated ]] || outcome=undecided
  fi
  echo "outcome=$outcome" >>"$GITHUB_OUTPUT"
fi
exit "$code"
