# Manual pages, completions, installing, releasing, packages, static programs. docs/packaging.md.
INSTALLED   := $(foreach p,$(PROGRAMS),$(BIN)/$(bin_$(p)))
MANUALS     := $(patsubst docs/man/%,$(B)/man/%,$(wildcard docs/man/*.[1-9]))
COMPLETIONS := $(foreach s,bash zsh fish,$(patsubst %,$(B)/completions/%.$(s),$(notdir $(INSTALLED))))
INSTALL_ENV  = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' BIN='$(BIN)' B='$(B)' ZSHDIR='$(ZSHDIR)' LIBDIR='$(LIBDIR)'

# Temporary files carry the process: two makes at a time, as tests are, do not take each other's.
.PHONY: man completions install uninstall dist
man: $(MANUALS)
completions: $(COMPLETIONS)

# Pages name the folders under PREFIX.
$(B)/man/prefix: force
	@mkdir -p $(@D)
	@echo '$(PREFIX)' | cmp -s - $@ || echo '$(PREFIX)' > $@
$(B)/man/%: docs/man/% docs/man/exit-status.inc docs/man/environment.inc runtime/thermo.h scripts/man.sh scripts/help.awk common/base/version.h \
    $(INSTALLED) $(B)/man/prefix
	$(if $(V),,@echo "  MAN   $@")
	$(Q)BIN='$(BIN)' PREFIX='$(PREFIX)' scripts/man.sh $< > $@.$$$$.tmp && mv $@.$$$$.tmp $@

define completion_rule
$(B)/completions/$(notdir $(1)).$(2): $(1) scripts/completions.sh scripts/help.awk
	@mkdir -p $$(@D)
	$(Q)scripts/completions.sh $(2) $(1) > $$@.$$$$$$$$.tmp && mv $$@.$$$$$$$$.tmp $$@
endef
$(foreach s,bash zsh fish,$(foreach p,$(INSTALLED),$(eval $(call completion_rule,$(p),$(s)))))

# With DESTDIR nothing outside it is touched; a device needs `make runtime` and the one file only.
install: all library $(B)/thermo.pc $(B)/thermo-serve@.service man completions
	$(Q)$(INSTALL_ENV) scripts/install.sh install
uninstall:
	$(Q)$(INSTALL_ENV) scripts/install.sh uninstall

# What git tracks, in one archive that is the same bytes each time.
dist:
	@mkdir -p build
	git archive --format=tar --prefix=thermocline-$(VERSION)/ HEAD | gzip -9n > build/thermocline-$(VERSION).tar.gz
	@ls -l build/thermocline-$(VERSION).tar.gz

# A runtime that needs no shared library, for this processor (make runtime STATIC=1) and for aarch64.
SYSROOT      ?= build/sysroot-arm64
AARCH64_BIN  := build/aarch64-static/bin
AARCH64_MAKE  = CPPFLAGS='-idirafter $(SYSROOT)/usr/include' LDFLAGS='-L$(SYSROOT)/usr/lib/aarch64-linux-gnu' \
    $(MAKE) --no-print-directory CC=$(CROSS) STATIC=1 B=build/aarch64-static BIN=$(AARCH64_BIN)
.PHONY: static-aarch64 check-static
static-aarch64:
	$(Q)scripts/sysroot.sh arm64 $(SYSROOT)
	$(Q)+$(AARCH64_MAKE) runtime profiler/probe
check-static: all static-aarch64
	$(Q)$(MAKE) --no-print-directory STATIC=1 runtime
	$(Q)$(TEST_ENV) tests/static.sh build/$(ARCH)-static/bin/thermo-run
	$(Q)$(TEST_ENV) TIERS='neon dotprod i8mm' tests/static.sh $(AARCH64_BIN)/thermo-run qemu-aarch64 -cpu max

.PHONY: deb check-deb
deb:
	$(Q)scripts/deb.sh binary
check-deb:
	$(Q)scripts/deb.sh chroot

# Slow, and therefore no part of make check: two whole builds; the archive of make dist built and tested where no git is.
.PHONY: check-reproducible check-dist
check-reproducible:
	$(Q)$(TEST_ENV) tests/reproducible.sh
DIST_TESTS ?=
check-dist: dist
	rm -rf build/dist && mkdir -p build/dist && tar -xzf build/thermocline-$(VERSION).tar.gz -C build/dist
	cd build/dist/thermocline-$(VERSION) && GIT_DIR=/nonexistent $(MAKE) --no-print-directory all tests && \
	    GIT_DIR=/nonexistent $(MAKE) --no-print-directory check $(if $(DIST_TESTS),TESTS='$(DIST_TESTS)')
