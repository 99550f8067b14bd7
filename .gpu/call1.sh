set -u
make -s tree; export PYTHONPATH=$PWD/build/tree PYTHONUNBUFFERED=1
nvidia-smi -L; uname -r
timeout 40 python3 .gpu/silence-probe.py > $OUT/silence.txt 2>&1; tail -45 $OUT/silence.txt | cut -c1-330
timeout 330 python3 -m detshare.tools.bench.mix --quick --seconds 5 --budget-s 270 --out $OUT/res > $OUT/mix.txt 2>&1; tail -60 $OUT/mix.txt | cut -c1-400
find /tmp -name 'detshared*.log' -newer Makefile 2>/dev/null | head; ls -R $OUT | head -30
