#!/usr/bin/env bash
# install.sh BUILT PREFIX LIBDIR MANDIR DESTDIR: the part of `make install` after the
# build. BUILT must have both binaries and c-library/ (see c-library.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
built=$1 prefix=$2 libdir=$3 mandir=$4 destdir=$5
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

install -d "$destdir$prefix"/{bin,include} "$destdir$libdir/pkgconfig" "$destdir$mandir/man1"
install -m 755 "$built/trunkline" "$built/trunkline-lab" "$destdir$prefix/bin/"
# trunkline-lab looks for it here, relative to its own folder.
speech="$destdir$prefix/share/trunkline/speech"
install -d "$speech/librispeech"
install -m 644 speech/*.{md,txt,wav} "$speech/"
install -m 644 speech/librispeech/*.wav "$speech/librispeech/"
install -d "$destdir$prefix/lib/systemd/system"
sed "s|/usr/local/bin/|$prefix/bin/|" packaging/trunkline@.service \
    >"$destdir$prefix/lib/systemd/system/trunkline@.service"
install -m 644 include/trunkline.h "$destdir$prefix/include/"
install -m 644 "$built/c-library/libtrunkline.a" "$destdir$libdir/"
install -m 755 "$built/c-library/libtrunkline.so.$version" "$destdir$libdir/"
# The links for the linker and the loader.
cp -P "$built/c-library/libtrunkline.so" "$built/c-library/libtrunkline.so.${version%%.*}" "$destdir$libdir/"
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" -e '/^#/d' \
    trunkline.pc.in >"$destdir$libdir/pkgconfig/trunkline.pc"

"$built/trunkline" man >"$destdir$mandir/man1/trunkline.1"
# The main page lists the pages of the subcommands.
sed -n 's/^trunkline\\-\([a-z]*\)(1)$/\1/p' "$destdir$mandir/man1/trunkline.1" | grep -vx help |
    while read -r subcommand; do
        "$built/trunkline" man "$subcommand" >"$destdir$mandir/man1/trunkline-$subcommand.1"
    done
