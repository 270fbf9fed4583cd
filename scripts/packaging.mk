# Manual pages, completions, installing, releasing, packages, static programs. docs/packaging.md.
SCRIPTED    := thermo-pipeline
INSTALLED   := $(foreach p,$(PROGRAMS),$(BIN)/$(bin_$(p)))
MANUALS     := $(patsubst docs/man/%,$(B)/man/%,$(wildcard docs/man/*.[1-9]))
COMPLETIONS := $(foreach s,bash zsh fish,$(patsubst %,$(B)/completions/%.$(s),$(notdir $(INSTALLED)) $(SCRIPTED)))
INSTALL_ENV  = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' BIN='$(BIN)' B='$(B)' ZSHDIR='$(ZSHDIR)'

# Temporary files carry the process: two makes at a time, as tests are, do not take each other's.
.PHONY: man completions install uninstall dist
man: $(MANUALS)
completions: $(COMPLETIONS)

# The pipeline's script says where results go by where it lies: it is asked in a folder that is no checkout.
$(B)/scripted/thermo-pipeline: scripts/pipeline.sh
	@mkdir -p $(@D)
	$(Q)cp $< $@ && chmod +x $@
# Pages name the folders under PREFIX.
$(B)/man/prefix: force
	@mkdir -p $(@D)
	@echo '$(PREFIX)' | cmp -s - $@ || echo '$(PREFIX)' > $@
$(B)/man/%: docs/man/% docs/man/exit-status.inc docs/man/environment.inc scripts/man.sh scripts/help.awk common/version.h \
    $(INSTALLED) $(B)/scripted/thermo-pipeline $(B)/man/prefix
	$(if $(V),,@echo "  MAN   $@")
	$(Q)BIN='$(BIN)' PREFIX='$(PREFIX)' script='$(B)/scripted/thermo-pipeline' scripts/man.sh $< > $@.$$$$.tmp && mv $@.$$$$.tmp $@

define completion_rule
$(B)/completions/$(notdir $(1)).$(2): $(1) scripts/completions.sh scripts/help.awk
	@mkdir -p $$(@D)
	$(Q)scripts/completions.sh $(2) $(1) > $$@.$$$$$$$$.tmp && mv $$@.$$$$$$$$.tmp $$@
endef
$(foreach s,bash zsh fish,$(foreach p,$(INSTALLED) $(B)/scripted/thermo-pipeline,$(eval $(call completion_rule,$(p),$(s)))))

# With DESTDIR nothing outside it is touched; a device needs `make runtime` and the one file only.
install: all man completions
	$(Q)$(INSTALL_ENV) scripts/install.sh install
uninstall:
	$(Q)$(INSTALL_ENV) scripts/install.sh uninstall

# What git tracks, in one archive that is the same bytes each time.
dist:
	@mkdir -p build
	git archive --format=tar --prefix=thermocline-$(VERSION)/ HEAD | gzip -9n > build/thermocline-$(VERSION).tar.gz
	@ls -l build/thermocline-$(VERSION).tar.gz
