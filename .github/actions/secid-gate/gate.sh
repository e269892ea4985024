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

# After -- nothing is an option, whatever a file is called.
arguments+=(--)
while IFS= read -r source; do
  source="${source%$'\r'}"
  [[ -z "$source" ]] || arguments+=("$source")
done <<<"$GATE_SOURCES"

code=0
secid "${arguments[@]}" || code=$?

if [[ -n "${GITHUB_OUTPUT:-}" ]]; then
  case "$code" in
    0) outcome=pass ;;
    1) outcome=fail ;;
    3) outcome=undecided ;;
    *) outcome=error ;;
  esac
  echo "outcome=$outcome" >>"$GITHUB_OUTPUT"
fi
exit "$code"
