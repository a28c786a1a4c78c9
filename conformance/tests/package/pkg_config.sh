#!/bin/sh
# Builds C11 programs against an installed exattn by pkg-config and runs them: pkg_config.sh CC PREFIX FOLDER SOURCE...
set -eu
cc=$1 prefix=$2 folder=$3
shift 3
libdir=$(dirname "$(find "$prefix" -name exattn.pc)")/..
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
for source; do
  program=$folder/pkg_config_$(basename "$source" .c)
  # shellcheck disable=SC2046 # several words are wanted
  "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$source" -o "$program" $(pkg-config --cflags --libs exattn) -lm
  LD_LIBRARY_PATH=$libdir "$program"
done
