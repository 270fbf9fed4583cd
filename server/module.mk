server_src := $(notdir $(wildcard server/*.c))
