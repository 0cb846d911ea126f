import { Button, FieldError, Label, ListBox, ListBoxItem, Popover, Select, SelectValue, Text } from 'react-aria-components';

interface Props<T extends string> {
  label: string;
  hideLabel?: boolean;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  description?: string;
  error?: string | undefined;
  isDisabled?: boolean;
}

export function SelectField<T extends string>({ label, hideLabel, value, options, onChange, description, error, isDisabled }: Props<T>) {
  return (
    <Select
      className="field"
      value={value}
      onChange={(key) => {
        const chosen = options.find(([option]) => option === key);
        if (chosen) onChange(chosen[0]);
      }}
      isInvalid={error !== undefined}
      {...(isDisabled === undefined ? {} : { isDisabled })}
      {...(hideLabel ? { 'aria-label': label } : {})}
    >
      {!hideLabel && <Label>{label}</Label>}
      <Button className="button select">
        <SelectValue />
        <span aria-hidden="true">▾</span>
      </Button>
      {description !== undefined && (
        <Text slot="description" className="small">
          {description}
        </Text>
      )}
      <FieldError className="field-error">{error}</FieldError>
      <Popover className="popover">
        <ListBox className="listbox">
          {options.map(([id, name]) => (
            <ListBoxItem key={id} id={id} textValue={name} className="option">
              {name}
            </ListBoxItem>
          ))}
        </ListBox>
      </Popover>
    </Select>
  );
}
