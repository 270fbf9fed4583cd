# How programs are built beyond what they need to run: hardened, the same bytes in any folder, and static where asked.
#
#   HARDEN=        builds without; what the flags cost is in docs/packaging.md
#   STATIC=1       programs that need no shared library, in build/ARCH-static/bin: a runtime to copy to a device
HARDEN ?= 1

# Compilers differ in what they know per processor: of each line of flags those are taken that compile an empty file without
# a warning. All of them are tried together first, which is one process where nothing is missing.
compiles = $(shell $(CC) -Werror $(1) -x c -c /dev/null -o /dev/null 2> /dev/null && echo yes)
harden_try := -fstack-protector-strong -fstack-clash-protection \
              $(if $(filter x86_64 i686,$(ARCH)),-fcf-protection) $(if $(filter aarch64,$(ARCH)),-mbranch-protection=standard)
# Of a library as of programs; and a program's own symbols are called directly.
CFLAGS_own  += -fPIC -fvisibility=hidden
ifneq ($(HARDEN),)
harden_flags := $(if $(call compiles,$(harden_try)),$(harden_try),$(foreach f,$(harden_try),$(if $(call compiles,$(f)),$(f))))
CFLAGS_own  += $(harden_flags)
# Checked copies need an optimising compiler, and sanitizers have checks of their own. Who builds packages may have set it.
ifeq ($(SANITIZE)$(findstring _FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS)),)
CPPFLAGS_own += $(if $(filter-out -O0,$(filter -O%,$(CFLAGS))),-D_FORTIFY_SOURCE=2)
endif
LDFLAGS_own += $(if $(STATIC),-static-pie,-pie) -Wl,-z,relro,-z,now,-z,noexecstack
else
LDFLAGS_own += $(if $(STATIC),-static)
endif

# A program has what is called in it. No tables for unwinding what throws nothing: debuggers take them from the debug information
# (docs/packaging.md). UNWIND=1: with tables; sanitizers have them.
UNWIND      ?= $(SANITIZE)
CFLAGS_own  += -ffunction-sections -fdata-sections $(if $(UNWIND),,-fno-asynchronous-unwind-tables -fno-unwind-tables)
LDFLAGS_own += -Wl,--gc-sections

# Relocations of tables of pointers as bits instead of 24 bytes each: linkers and C libraries that know of it (glibc 2.36).
packed_try  := -Wl,-z,pack-relative-relocs
LDFLAGS_own += $(shell echo '_Static_assert(__GLIBC_PREREQ(2, 36), ""); int main(void) { return 0; }' | $(CC) $(CPPFLAGS) $(LDFLAGS) -fPIE -pie \
    -Wl,--fatal-warnings $(packed_try) -include features.h -x c -o /dev/null - 2> /dev/null && echo '$(packed_try)')

# No object and no debug information names the folder it was built in.
CFLAGS_own  += -ffile-prefix-map="$(CURDIR)"=.
# Archives without dates and owners, whatever the binutils' default is.
ARFLAGS := rcsD
