runtime_src := $(patsubst runtime/%,%,$(wildcard runtime/*.c runtime/*/*.c))
# The accelerator's kernels are a source of their own, which becomes a string at build time.
$(B)/runtime/opencl/opencl_program.o: CPPFLAGS_file += -I$(B)
$(B)/runtime/opencl/opencl_program.o: $(B)/opencl_kernels.inc
$(B)/opencl_kernels.inc: runtime/opencl/kernels.cl
	@mkdir -p $(@D)
	$(Q)sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $< > $@
