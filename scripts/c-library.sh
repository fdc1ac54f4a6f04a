#!/usr/bin/env bash
# c-library.sh OUT [PROFILE [CARGO FLAGS...]]: builds the C library with the
# cargo profile (dev) and leaves it in OUT: libtrunkline.a, and libtrunkline.so
# with the links that the linker and the loader need.
#
# The shared library is linked from the static one, not by rustc as a cdylib. For a
# cdylib, rustc hands the linker a list of symbols without versions; GNU ld then refuses
# crates/client/trunkline.map, and lld ignores it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1 profile=${2:-dev}
shift $(($# < 2 ? $# : 2))

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
major=${version%%.*}

cargo rustc --quiet -p trunkline-client --lib --crate-type staticlib --profile "$profile" "$@"
mkdir -p "$out"
cp "${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}/libtrunkline_client.a" "$out/libtrunkline.a"
# --gc-sections leaves out the parts of Rust's standard library that no tl_ function
# reaches.
libraries=$(sed -n 's/^Libs.private: //p' trunkline.pc.in)
# shellcheck disable=SC2086 # a list of words
"${CC:-cc}" -shared -o "$out/libtrunkline.so.$version" \
    -Wl,-soname,"libtrunkline.so.$major" \
    -Wl,--version-script=crates/client/trunkline.map \
    -Wl,--gc-sections,--as-needed,--no-undefined,-z,relro,-z,now \
    -Wl,--whole-archive "$out/libtrunkline.a" -Wl,--no-whole-archive \
    $libraries
ln -sf "libtrunkline.so.$version" "$out/libtrunkline.so.$major"
ln -sf "libtrunkline.so.$major" "$out/libtrunkline.so"
