# Everything here but the per-ISA kernels, which carry their own flags.
common_isa        := $(patsubst common/%,%,$(wildcard $(addprefix common/kernels/kernels_,avx2.c avxvnni.c avx512.c neon.c dotprod.c i8mm.c avx2_k.c avx512_k.c avx512_vbmi.c neon_k.c amx.c)))
# With AddressSanitizer the library has the kernels as they are without, behind a table that looks at operands (kernels_guard.c); tests of the
# kernels alone link $(B)/instrumented/common/kernels/.
common_guarded    := $(if $(findstring fuzzer,$(SANITIZE)),,$(findstring address,$(SANITIZE)))
common_src        := $(filter-out $(common_isa) $(if $(common_guarded),,kernels/kernels_guard.c) offline/%,$(patsubst common/%,%,$(wildcard common/*/*.c)))
# Fuzzers reach no kernels: for them the scalar ones are enough, and clang is spared minutes.
common_scalar     := $(findstring fuzzer,$(SANITIZE))
common_src_x86_64 := $(if $(common_scalar),,$(filter %_avx2.c %_avxvnni.c %_avx512.c %_avx2_k.c %_avx512_k.c %_avx512_vbmi.c %_amx.c,$(common_isa)))
common_src_aarch64 := $(if $(common_scalar),,$(filter %_neon.c %_dotprod.c %_i8mm.c %_neon_k.c,$(common_isa)))
$(B)/common/kernels/kernels.o: CPPFLAGS_file += $(if $(common_scalar),-DKERNELS_SCALAR_ALONE) $(if $(common_guarded),-DKERNELS_GUARDED)
$(B)/instrumented/%.o: %.c $(B)/compile.flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $< (instrumented)")
	$(Q)$(compile)
# Flags of both: kernel_objs NAME...
kernel_objs = $(foreach o,$(1),$(B)/common/kernels/kernels_$(o).o $(B)/instrumented/common/kernels/kernels_$(o).o)
# clang warns where it does not unroll as asked (at -O0, under sanitizers): no error. gcc ignores the flag.
$(B)/common/kernels/kernels_%.o $(B)/instrumented/common/kernels/kernels_%.o: CFLAGS_file += -Wno-pass-failed
# Following variables through what these inline takes the compiler as long as everything else together: with -g they have line numbers.
$(B)/common/kernels/kernels_%.o: CFLAGS_file += $(if $(filter -g -g2 -g3 -ggdb%,$(CFLAGS)),-g1)
# Instrumented at -O2 one of them takes gcc minutes, at -O1 a third of that. With calls where memory is read or written
# (--param asan-instrumentation-with-call-threshold=0) it is half of that again, but a trace takes six times as long.
$(if $(common_guarded),$(B)/instrumented/common,$(B)/common)/kernels/kernels_%.o: CFLAGS_file += $(if $(SANITIZE),-O1)
ifneq ($(common_guarded),)
common_plain      := $(patsubst %.c,$(B)/common/%.o,kernels/kernels_scalar.c $(common_src_$(ARCH)))
$(common_plain): CFLAGS_own := $(filter-out -fsanitize=% -fno-sanitize% -fno-omit-frame-pointer,$(CFLAGS_own))
$(common_plain): CFLAGS := -O2 -g
$(common_plain): CPPFLAGS_own += $(if $(HARDEN),-D_FORTIFY_SOURCE=2)
endif
$(call kernel_objs,avx2 avx2_k): CFLAGS_file += -mavx2 -mfma -mf16c
$(call kernel_objs,avxvnni): CFLAGS_file += -mavx2 -mfma -mf16c -mavxvnni
$(call kernel_objs,avx512 avx512_k): CFLAGS_file += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni \
                                                    -mtune=skylake-avx512
$(call kernel_objs,avx512_vbmi): CFLAGS_file += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi
$(call kernel_objs,amx): CFLAGS_file += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mamx-tile -mamx-int8
$(call kernel_objs,dotprod): CFLAGS_file += -march=armv8.2-a+dotprod
$(call kernel_objs,i8mm): CFLAGS_file += -march=armv8.2-a+dotprod+i8mm
# The accelerator's kernels are a source of their own, which becomes a string at build time, without indentation.
$(B)/common/opencl/opencl_program.o: CPPFLAGS_file += -I$(B)
$(B)/common/opencl/opencl_program.o: $(B)/opencl_kernels.inc
$(B)/opencl_kernels.inc: common/opencl/kernels.cl
	@mkdir -p $(@D)
	$(Q)sed -e 's/^ *//' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $< > $@
# What the rows of a hardware database hold, from its schema.
$(B)/common/hwdb/hwdb_fields.o: CPPFLAGS_file += -I$(B)
$(B)/common/hwdb/hwdb_fields.o: $(B)/hwdb_fields.inc
$(B)/hwdb_fields.inc: common/hwdb/hwdb_fields.awk schemas/hwdb.sql
	@mkdir -p $(@D)
	$(Q)awk -f $^ > $@.tmp && mv $@.tmp $@
