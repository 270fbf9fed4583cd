server_src := $(notdir $(wildcard server/*.c))
# The page at / is one file by then, and a string.
$(B)/server/page.o: CPPFLAGS_file += -I$(B)
$(B)/server/page.o: $(B)/server_page.inc
$(B)/server_page.inc: $(wildcard server/page/*) scripts/page.sh
	@mkdir -p $(@D)
	$(Q)scripts/page.sh server/page > $@.$$$$.tmp && mv $@.$$$$.tmp $@
