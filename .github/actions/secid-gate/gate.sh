#!/usr/bin/env bash
# Judges the sources of negatives that a change adds, alters or renames. The GitHub action and the GitLab job run it.
#
#   gate.sh changed   counts them; outputs: count, encoder
#   gate.sh install   installs secid from the checkout of this script, so that pinning one pins both
#   gate.sh judge     runs `secid gate` on them; outputs: outcome, and model and embeddings where there is such a cache
#   gate.sh           all three; installs and judges nothing where no source changed
#
# Exit codes: 0 pass, 1 fail, 2 no verdict, 3 undecided. All inputs are environment variables:
#   GATE_FOLDER      folder of the sources (negatives)        GATE_AGAINST    baseline (secid-baseline.json)
#   GATE_BASE        commit that the change is compared with  GATE_POLICY     policy file ([gate] of secid.toml)
#   GATE_SOURCES     sources to judge instead, one a line     GATE_PAIRED     run folder of the baseline
#   GATE_ENCODER     encoder (the baseline's)                 GATE_REPORTS    folder of the reports (secid-gate)
#   GATE_UNDECIDED   fail or warn                             GATE_EXIT_ZERO  true: 1 and 3 become 0
set -euo pipefail

folder="${GATE_FOLDER:-negatives}"
against="${GATE_AGAINST:-secid-baseline.json}"
reports="${GATE_REPORTS:-secid-gate}"
records='\.(jsonl|ndjson|json|csv|tsv|parquet|arrow)(\.gz|\.zst|\.zstd)?$'
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

output() {
  [[ -z "${GITHUB_OUTPUT:-}" ]] || printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"
}

no_verdict() {
  echo "${GITHUB_ACTIONS:+::error title=secid gate::}secid gate: $1" >&2
  output outcome error
  exit 2
}

# Sets sources: the files of records that HEAD adds to the base or changes. A renamed file counts as new.
find_sources() {
  sources=()
  local name base="${GATE_BASE:-}"
  if [[ -n "${GATE_SOURCES:-}" ]]; then
    while IFS= read -r name; do
      name="${name%$'\r'}"
      [[ -z "$name" ]] || sources+=("$name")
    done <<<"$GATE_SOURCES"
    return
  fi
  # Of a pull request: the branch as it is now; the event's own commit may be older than what was merged for the test.
  [[ -n "$base" || -z "${GITHUB_BASE_REF:-}" ]] || base="origin/$GITHUB_BASE_REF"
  base="${base:-${GATE_BEFORE:-}}"
  [[ -n "$base" ]] || no_verdict "no commit to compare with: set the input base, or GATE_BASE"
  git --literal-pathspecs diff --name-only --no-renames --diff-filter=d -z "$base...HEAD" -- "$folder" \
    >"$scratch/changed" ||
    no_verdict "no comparison with $base: check out the whole history (fetch-depth or GIT_DEPTH: 0)"
  while IFS= read -r -d '' name; do
    [[ ! "$name" =~ $records ]] || sources+=("$name")
  done <"$scratch/changed"
}

changed() {
  find_sources
  output count "${#sources[@]}"
  if [[ "${#sources[@]}" == 0 ]]; then
    local line="secid gate: no source under $folder changed"
    echo "$line"
    [[ -z "${GITHUB_STEP_SUMMARY:-}" ]] || echo "$line" >>"$GITHUB_STEP_SUMMARY"
    output outcome unchanged
  elif [[ -f "$against" ]]; then
    output encoder "$(sed -n 's/^    "fingerprint": "\([0-9a-f]*\)".*/\1/p' "$against" | head -n 1)"
  fi
}

install() {
  local root
  root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
  pip install --quiet --constraint "$root/constraints.txt" "${root}[offline]" || no_verdict "installation failed"
}

judge() {
  find_sources
  local arguments=(gate --against "$against")
  [[ -z "${GITHUB_ACTIONS:-}" ]] || arguments+=(--annotations github)
  [[ -z "${GATE_POLICY:-}" ]] || arguments+=(--policy "$GATE_POLICY")
  [[ -z "${GATE_PAIRED:-}" ]] || arguments+=(--paired "$GATE_PAIRED")
  [[ -z "${GATE_ENCODER:-}" ]] || arguments+=(--encoder "$GATE_ENCODER")
  [[ "${GATE_EXIT_ZERO:-false}" != true ]] || arguments+=(--exit-zero)
  mkdir -p "$reports"
  rm -f "$reports"/gate.{html,xml,json}
  arguments+=(--out "$reports/gate.html" --out "$reports/gate.xml" --out "$reports/gate.json")

  local code=0 outcome=""
  # After -- nothing is an option, whatever a file is called.
  secid "${arguments[@]}" -- "${sources[@]}" || code=$?
  [[ ! -f "$reports/gate.json" ]] || outcome="$(sed -n 's/^  "outcome": "\([a-z]*\)".*/\1/p' "$reports/gate.json")"
  # An internal error ends with 3 as well, and an interpreter's with 1: only a verdict that agrees is one.
  case "$code-$outcome" in
    0-pass | 1-fail | 3-undecided) ;;
    0-fail | 0-undecided) [[ "${GATE_EXIT_ZERO:-false}" == true ]] || no_verdict "exit code 0, verdict $outcome" ;;
    *) no_verdict "no verdict (exit code $code)" ;;
  esac
  output outcome "$outcome"
  [[ ! -d ~/.cache/huggingface/hub ]] || output model true
  [[ ! -d ~/.cache/secid ]] || output embeddings true
  [[ "$code" != 3 || "${GATE_UNDECIDED:-fail}" != warn ]] || code=0
  exit "$code"
}

case "${1:-all}" in
  changed | install | judge) "$1" ;;
  all)
    changed
    [[ "${#sources[@]}" != 0 ]] || exit 0
    install
    judge
    ;;
  *) no_verdict "no such command: $1" ;;
esac
