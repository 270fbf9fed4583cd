runtime_src := $(patsubst runtime/%,%,$(wildcard runtime/*.c runtime/*/*.c))
