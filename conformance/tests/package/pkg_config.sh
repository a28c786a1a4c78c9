#!/bin/sh
# Builds the C11 program against an installed exattn by pkg-config and runs it: pkg_config.sh CC PREFIX SOURCE PROGRAM
set -eu
cc=$1 prefix=$2 source=$3 program=$4
libdir=$(dirname "$(find "$prefix" -name exattn.pc)")/..
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # several words are wanted
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$source" -o "$program" $(pkg-config --cflags --libs exattn) -lm
LD_LIBRARY_PATH=$libdir "$program"
