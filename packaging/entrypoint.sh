#!/bin/sh
# What the image runs: a hub or a site, from the directories that are mounted. Works without Docker as well.
#   fcac-entrypoint hub              serves the study in $FCAC_STUDY (default ./study)
#   fcac-entrypoint site [OPTIONS]   takes part with the bundle in $FCAC_BUNDLE and the tables in $FCAC_DATA
#   fcac-entrypoint healthy          exits with 0 if the role that was started can be read
#   fcac-entrypoint fcac ...         any other command
set -eu
study=${FCAC_STUDY:-study}
bundle=${FCAC_BUNDLE:-bundle}
data=${FCAC_DATA:-data}
role=${1:-hub}
[ "$#" -eq 0 ] || shift
need() { [ -e "$1" ] || { echo "fcac: $2 is not there: mount it at $1, or name it with $3" >&2; exit 2; }; }
case "$role" in
  hub)
    need "$study/federation.toml" "the study" FCAC_STUDY
    exec fcac federation server "$study" "$@" ;;
  site)
    need "$bundle/bundle.toml" "the site's bundle" FCAC_BUNDLE
    exec fcac federation site "$bundle" --data "$data" "$@" ;;
  healthy)
    if [ -e "$study/federation.toml" ]; then exec fcac federation status "$study" --json >/dev/null; fi
    need "$bundle/bundle.toml" "a study or a bundle" FCAC_STUDY ;;
  fcac) exec fcac "$@" ;;
  *) echo "fcac: the role must be hub, site, healthy or fcac, not $role" >&2; exit 2 ;;
esac
