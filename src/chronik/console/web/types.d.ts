// Types that the scripts of the console share. They are global: JSDoc comments use them without an import.

/** What `append` accepts as children of an element. */
type Child = Node | string | number | boolean | null | undefined | Child[];

type Tone = "" | "primary" | "danger" | "quiet";

interface ButtonOptions {
  tone?: Tone;
  glyph?: string;
  disabled?: boolean;
  /** Identifies the button, so that it keeps the focus when it is drawn again. */
  focus?: string;
  title?: string;
  type?: "button" | "submit";
  small?: boolean;
  /** The id of the form that the button submits. */
  form?: string;
}

/** A labeled input of a form. Fields without a name are not part of the form's values. */
interface FormField {
  node: HTMLElement;
  name?: string;
  input?: HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;
  read?: () => any;
  /** The fields in a row of fields. */
  parts?: FormField[];
}

interface FieldOptions {
  type?: string;
  value?: string | number | null;
  hint?: string;
  required?: boolean;
  min?: number | string;
  max?: number | string;
  placeholder?: string;
  autofocus?: boolean;
  pattern?: string;
  autocomplete?: string;
  /** The number of lines; without it, the field has one line. */
  rows?: number;
  mono?: boolean;
  inputmode?: string;
  /** Values that the browser offers. */
  suggestions?: string[];
}

/** The plan of an operation, or the reason why it is refused. */
interface Plan {
  plan?: any;
  refused?: string | null;
}

interface DialogOptions {
  wide?: boolean;
  onclose?: () => void;
  extra?: string;
}

interface Confirmation {
  action: string;
  title: string;
  intro?: Child;
  /** Returns the plan, which is shown first. */
  preview?: () => Promise<Plan>;
  /** The name that the user must type. */
  typed?: string;
  label?: string;
  tone?: Tone;
  run: () => Promise<any>;
  done?: (answer: any) => unknown;
  success?: string;
  /** Shown while the response is not done and the action is repeated. */
  meanwhile?: string;
  /** Shown if the dialog is closed before the action is done. */
  left?: string;
  onclose?: () => void;
}

interface Form {
  action: string;
  title: string;
  intro?: Child;
  fields: FormField[];
  label?: string;
  preview?: (values: any) => Promise<Plan>;
  previews?: (values: any) => boolean;
  submit: (values: any) => Promise<any>;
  done?: (answer: any, values: any) => unknown;
  success?: string | ((values: any, answer: any) => string);
  wide?: boolean;
  tone?: Tone;
  onclose?: () => void;
}

interface Column<Row = any> {
  /** Empty for the column of actions. */
  label: string;
  cell: (row: Row) => Child;
  /** "end" for numbers. */
  align?: string;
  grow?: boolean;
  /** Returns what the column is sorted by, or names the order if the server sorts. */
  sort?: string | ((row: Row) => string | number | null | undefined);
  /** Not the header of its row. */
  plain?: boolean;
}

interface TableOptions<Row = any> {
  empty?: Child;
  key?: (row: Row) => string | number;
  tone?: (row: Row) => string | undefined;
  /** With `remote`, the server has sorted the rows. */
  sort?: { value: () => string | undefined; set: (sort: string) => void; remote?: boolean };
  /** Without it, only screen readers read the caption. */
  showCaption?: boolean;
}

interface ResourceOptions {
  /** The interval of reloads; 0 for none. */
  everyMs?: number;
  /** Shown during the first load. */
  text?: string;
  /** Elements that are hidden unless the data is loaded, such as the buttons of a topic that may not exist. */
  dependents?: HTMLElement[];
  /** What the principal needs to see the data, such as "Describe on the cluster". */
  permission?: string;
}

/** The place in the console that a URL names. */
interface Route {
  parts: string[];
  params: Record<string, string>;
}

/** The page of a route; `update` is called when only parameters have changed. */
interface Page {
  title: string;
  node: HTMLElement;
  live?: (live: any) => void;
  update?: (params: Record<string, string>) => void;
  refresh?: () => unknown;
  close?: () => void;
}
