#!/bin/sh
# A training step on an emulated Raspberry Pi 4: real aarch64 wheels on a Cortex-A72, compared with this machine.
#
#   deploy/pi-emulated/run.sh PYTHON [FOLDER]      PYTHON has edgefl[coordinator]; FOLDER keeps what is downloaded
#
# ONNXRUNTIME=1.23.2 tries another version of onnxruntime than the one a device with this Python gets.
# Needs qemu-user (apt-get install qemu-user), apt-get and dpkg-deb. Nothing is installed into this system: Debian's
# arm64 packages are unpacked into FOLDER, with package lists of their own.
set -eu

python=$1
folder=${2:-build/pi-emulated}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
packages="python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libstdc++6 libgcc-s1 libexpat1 zlib1g
    libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1"
version=${ONNXRUNTIME:-1.31.1}
wheels="numpy==2.2.6 onnxruntime==$version paho-mqtt==2.2.0 pydantic msgpack backports.zstd cryptography safetensors
    psutil typer rich"

qemu=${QEMU:-$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)}
if [ -z "$qemu" ]; then
    echo "pi-emulated: no qemu-aarch64 on this machine; apt-get install qemu-user, or set QEMU" >&2
    exit 2
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if [ ! -e "$folder/root/usr/bin/python3.11" ]; then
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/debs" "$folder/root"
    : > "$folder/status"
    echo 'deb http://deb.debian.org/debian bookworm main' > "$folder/sources.list"
    set -- -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User="$(id -un)" \
        -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$folder/lists" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder/cache"
    apt-get "$@" update
    # shellcheck disable=SC2086 - a list of words
    (cd "$folder/debs" && apt-get "$@" download $packages)
    for deb in "$folder"/debs/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done
fi
# onnxruntime asks the kernel what it runs on, and crashes when the answer is this machine's processor. qemu looks for
# every file below its root first, so that a Pi's answers can stand there.
if [ ! -e "$folder/root/proc/cpuinfo" ]; then
    mkdir -p "$folder/root/proc"
    system="$folder/root/sys/devices/system/cpu"
    for n in 0 1 2 3; do
        mkdir -p "$system/cpu$n/topology" "$system/cpu$n/cpufreq"
        printf 'processor\t: %s\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 cpuid\n' $n
        printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n'
        printf 'CPU part\t: 0xd08\nCPU revision\t: 3\n\n'
        echo 0 > "$system/cpu$n/topology/physical_package_id"
        echo $n > "$system/cpu$n/topology/core_id"
        echo 0-3 > "$system/cpu$n/topology/core_siblings_list"
        echo $n > "$system/cpu$n/topology/thread_siblings_list"
        echo 1500000 > "$system/cpu$n/cpufreq/cpuinfo_max_freq"
        echo 600000 > "$system/cpu$n/cpufreq/cpuinfo_min_freq"
    done > "$folder/root/proc/cpuinfo"
    for name in possible present online; do echo 0-3 > "$system/$name"; done
    echo 7 > "$system/kernel_max"
fi
site=$folder/site-$version
if [ ! -d "$site/onnxruntime" ]; then
    platforms=$(for n in 28 27 26 17; do printf -- '--platform manylinux_2_%s_aarch64 ' $n; done)
    # shellcheck disable=SC2086
    "$python" -m pip install --quiet --quiet --target "$site" --only-binary=:all: --implementation cp \
        --python-version 3.11 $platforms --platform manylinux2014_aarch64 $wheels
fi

cd "$top"
"$python" "$here/step.py" graphs "$folder/graphs"
echo "-- this machine"
"$python" "$here/step.py" train "$folder/graphs" "$folder/here.npy"
echo "-- $($qemu --version | head -n 1), -cpu cortex-a72"
"$qemu" -cpu cortex-a72 -L "$folder/root" -E PYTHONPATH="$top:$site" -E PYTHONDONTWRITEBYTECODE=1 \
    -E OPENBLAS_NUM_THREADS=1 "$folder/root/usr/bin/python3.11" \
    "$here/step.py" train "$folder/graphs" "$folder/there.npy"
echo "-- both"
"$python" "$here/step.py" compare "$folder/here.npy" "$folder/there.npy"
