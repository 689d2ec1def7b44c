#!/bin/sh
# Takes from what is installed what our services have no use for: trim.sh SITE_PACKAGES (needs patchelf and strip).
# Of pyarrow the reading and writing of parquet files is left, 70 of 167 MB, and its data sets where the library `datasets`,
# which imports them, is installed.
set -eu
cd "$1"
if [ -d pygments ]; then # comes with rich, which colours Python only: plumb show prints other languages plain
  find pygments/lexers -name '[a-z]*.py' ! -name python.py ! -name special.py -delete
fi
# The libraries of numpy and scipy bear no stripping.
find . -name '*.so' ! -path './numpy*' ! -path './scipy*' ! -path './pyarrow/*' -exec strip --strip-unneeded {} +

rm -rf pandas/tests
if [ -d scipy ]; then # comes with datasketch
  find scipy numpy -type d -name tests -prune -exec rm -r {} +
fi
data_sets=no
if [ -d datasets ]; then data_sets=yes; fi

cd pyarrow
rm -rf tests include src
rm -f ./*.pxi ./*.pyx ./*.pxd
rm -f ./*flight* ./*substrait* ./*orc* ./*encryption* ./*gandiva* ./*cpp_tests*
if [ "$data_sets" = no ]; then rm -f ./*acero* ./*dataset*; fi
rm -f libarrow_s3.so* _s3fs.* _gcsfs.* _azurefs.* _hdfs.* # fsspec is what opens remote files
# The same library under three names.
for name in libarrow_python.so libarrow_python.so.*.*.*; do rm -f "$name"; done
for library in ./*.so*; do
  # They are linked to libraries none of whose functions they call.
  for needed in $(patchelf --print-needed "$library"); do
    case $needed in
      libarrow_substrait.*) ;;
      libarrow_acero.* | libarrow_dataset.*) if [ "$data_sets" = yes ]; then continue; fi ;;
      *) continue ;;
    esac
    patchelf --remove-needed "$needed" "$library"
  done
  strip --strip-unneeded "$library"
done
