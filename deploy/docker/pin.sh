#!/bin/sh
# Ask the registry which images the tags name today, and write them down by their digests, in images.env beside this file.
# Run it when you want newer ones; nothing else changes them. Needs docker with buildx, and the registry.
set -eu
here=$(dirname "$0")
{
    echo "# Written by pin.sh: what these tags named when it ran."
    for pair in PYTHON_IMAGE=python:3.11-slim MOSQUITTO_IMAGE=eclipse-mosquitto:2; do
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
