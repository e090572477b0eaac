#!/bin/sh
# Ask the registry which image the tag names today, and write it down by its digest, in images.env beside this file.
# Run it when you want a newer one; nothing else changes it. Needs docker with buildx, and the registry.
set -eu
here=$(dirname "$0")
{
    echo "# Written by pin.sh: what the tag named when it ran."
    for pair in PYTHON_IMAGE=python:3.11-slim; do
        tag=${pair#*=}
        digest=$(docker buildx imagetools inspect "$tag" --format '{{.Manifest.Digest}}')
        case "$digest" in
            sha256:*) echo "${pair%%=*}=$tag@$digest" ;;
            *) echo "the registry gave no digest for $tag: $digest" >&2; exit 1 ;;
        esac
    done
} > "$here/images.env.new"
mv "$here/images.env.new" "$here/images.env"
cat "$here/images.env"
