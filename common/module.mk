# Everything here but the per-ISA kernels, which carry their own flags.
common_isa        := $(notdir $(wildcard common/kernels_avx2.c common/kernels_avx512.c common/kernels_neon.c common/kernels_dotprod.c common/kernels_i8mm.c))
common_src        := $(filter-out $(common_isa),$(notdir $(wildcard common/*.c)))
common_src_x86_64 := $(filter kernels_avx2.c kernels_avx512.c,$(common_isa))
common_src_aarch64 := $(filter kernels_neon.c kernels_dotprod.c kernels_i8mm.c,$(common_isa))
# clang warns where it does not unroll as asked (at -O0, under sanitizers): no error. gcc ignores the flag.
$(B)/common/kernels_%.o: CFLAGS_file += -Wno-pass-failed
# Fuzzers do not reach them, and clang takes minutes to instrument one.
$(B)/common/kernels_%.o: CFLAGS_file += $(if $(findstring fuzzer,$(SANITIZE)),-fno-sanitize=all)
$(B)/common/kernels_avx2.o:   CFLAGS_file += -mavx2 -mfma -mf16c
$(B)/common/kernels_avx512.o: CFLAGS_file += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
$(B)/common/kernels_dotprod.o: CFLAGS_file += -march=armv8.2-a+dotprod
$(B)/common/kernels_i8mm.o:   CFLAGS_file += -march=armv8.2-a+dotprod+i8mm
